"""Templates through the server: builds, logs, tags, and sandboxes from them."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import e2b
import pytest

from conftest import Face

pytestmark = pytest.mark.anyio
SERVED = "python3 -m http.server 8000 --directory /srv"


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to copy from."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app/hello.txt").write_text("hello from the build\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_a_template_is_built_and_its_services_run_in_each_sandbox(
    face: Face, anew: Any, context: Path
) -> None:
    name = f"served-{uuid.uuid4().hex[:8]}"
    template = (
        face.Template(file_context_path=str(context))
        .from_base_image()
        .copy("app", "/srv", user="root")
        .run_cmd(f"echo made by $(whoami) > /tmp/made; echo {name}")
        .set_envs({"GREETING": "hi"})
        .set_workdir("/srv")
        .set_start_cmd(SERVED, e2b.wait_for_port(8000))
    )
    logs: list[Any] = []
    built = await face.do(
        face.Template.build(template, name, cpu_count=1, memory_mb=512, on_build_logs=logs.append)
    )
    assert built.template_id
    assert any(name in one.message for one in logs)
    assert await face.do(face.Template.exists(name))
    assert await face.do(face.Template.alias_exists(name))
    made = await anew(name)
    served = await face.do(
        made.commands.run("curl -s http://localhost:8000/hello.txt; cat /tmp/made; echo $GREETING; pwd")
    )
    assert served.stdout == "hello from the build\nmade by user\nhi\n/srv\n"
    assert (await face.do(made.get_info())).name == name

    again = face.Template().from_template(name).run_cmd("echo more > /tmp/more")
    child = f"{name}-child"
    await face.do(face.Template.build(again, child))
    other = await anew(child)
    assert await face.do(other.files.read("/tmp/more")) == "more\n"


async def test_tags_name_builds(face: Face, anew: Any) -> None:
    name = f"tagged-{uuid.uuid4().hex[:8]}"
    template = face.Template().from_base_image().run_cmd("echo 1 > /tmp/version")
    built = await face.do(face.Template.build(template, name, tags=["v1"]))
    await face.do(face.Template.assign_tags(f"{name}:v1", ["stable", "blue"]))
    tags = {one.tag for one in await face.do(face.Template.get_tags(built.template_id))}
    assert {"v1", "stable", "blue"} <= tags
    await face.do(face.Template.remove_tags(name, "blue"))
    assert "blue" not in {one.tag for one in await face.do(face.Template.get_tags(built.template_id))}
    made = await anew(f"{name}:stable")
    assert await face.do(made.files.read("/tmp/version")) == "1\n"
    error = await face.raises(e2b.SandboxException, lambda: face.Sandbox.create(f"{name}:blue"))
    assert "blue" in str(error)


async def test_a_build_goes_on_in_the_background_and_tells_its_status(face: Face) -> None:
    name = f"background-{uuid.uuid4().hex[:8]}"
    template = face.Template().from_base_image().run_cmd(f"echo slowly {name}; sleep 1; echo done")
    info = await face.do(face.Template.build_in_background(template, name))
    logs: list[str] = []

    async def ended() -> Any:
        status = await face.do(face.Template.get_build_status(info, logs_offset=len(logs)))
        logs.extend(one.message for one in status.log_entries)
        return status.status if status.status.value in ("ready", "error") else None

    assert (await face.until(ended)).value == "ready"
    assert any(line.startswith(f"slowly {name}") for line in logs)


async def test_a_step_that_fails_fails_the_build_and_says_why(face: Face) -> None:
    name = f"failing-{uuid.uuid4().hex[:8]}"
    template = face.Template().from_base_image().run_cmd("echo about to fail; exit 9")
    error = await face.raises(e2b.BuildException, lambda: face.Template.build(template, name))
    assert "9" in str(error)
    assert not await face.do(face.Template.exists(f"never-{name}"))


async def test_a_dockerfile_builds_too(face: Face, anew: Any, context: Path) -> None:
    name = f"dockerfile-{uuid.uuid4().hex[:8]}"
    text = (
        "FROM ubuntu:22.04\nENV A=b\nWORKDIR /opt/place\nCOPY app/hello.txt .\nRUN cat hello.txt > copy.txt\n"
    )
    template = face.Template(file_context_path=str(context)).from_dockerfile(text)
    assert "FROM ubuntu:22.04" in face.Template.to_dockerfile(template)
    assert "COPY" in face.Template.to_json(template)
    await face.do(face.Template.build(template, name, skip_cache=True))
    made = await anew(name)
    read = await face.do(made.commands.run("cat /opt/place/copy.txt; echo $A"))
    assert read.stdout == "hello from the build\nb\n"
