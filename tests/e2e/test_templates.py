"""Templates as people build and use them, from images of a registry on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests import homes
from tests.e2e.command_line import atoll, said
from tests.e2e.test_images import shell_layers
from tests.registry import ImageSource, Registry, serving
from tests.waiting import until

from atoll import AsyncTemplates, Images, Sandbox, Snapshots, Supervisor, Template, Templates
from atoll.errors import (
    InUseError,
    InvalidSpecError,
    StateError,
    SupervisorError,
    TemplateBuildError,
    TemplateNotFoundError,
)
from atoll.sdk import for_servers
from atoll.sdk._sync.builds import request_build
from atoll.types import (
    BuildLine,
    CopyStep,
    EnvStep,
    RunStep,
    TemplateSpec,
    UserStep,
    WorkdirStep,
)

BOUND_S = 60.0
SERVE = "exec /bin/busybox httpd -f -p 8000 -h /srv/site"
ASK = "/bin/busybox wget -q -O - http://127.0.0.1:8000/page"


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with serving() as registry:
        yield registry


@pytest.fixture(scope="module")
def bare_home() -> Iterator[Path]:
    with homes.make_home(own_images=True) as path:
        yield path


@pytest.fixture(scope="module")
def image(registry: Registry, bare_home: Path) -> str:
    config = {"Env": ["PATH=/bin", "GREETING=hello"], "User": "app", "WorkingDir": "/home/app"}
    return registry.put("shell", "1", ImageSource(shell_layers(), config))


def nothing_runs() -> bool:
    return not list(Sandbox.list())


def states(template: str) -> list[str]:
    try:
        return [build.state for build in Templates.get(template).builds]
    except SupervisorError:  # the supervisor that was asked has just been killed
        return []


def site(image: str) -> TemplateSpec:
    return TemplateSpec(
        image=image,
        steps=[
            RunStep(command="echo once >> /counter", user="root"),
            EnvStep(env={"GREETING": "${GREETING}, world", "PATH": "/opt:$PATH"}),
            WorkdirStep(path="/srv/site"),
            CopyStep(sources=["pages"], target="."),
            CopyStep(sources=["secret.txt"], target="/etc/secret", user="root", mode=0o600),
            RunStep(command=["/bin/busybox", "touch", "/home/app/after"]),
        ],
        start_command=SERVE,
        ready_command=ASK,
    )


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    (tmp_path / "pages/deep").mkdir(parents=True)
    (tmp_path / "pages/page").write_text("first")
    (tmp_path / "pages/deep/.hidden").write_text("x")
    (tmp_path / "pages/left-out.log").write_text("x")
    (tmp_path / "secret.txt").write_text("hush")
    (tmp_path / ".dockerignore").write_text("**/*.log\n")
    return tmp_path


def test_a_template_has_its_files_settings_and_running_service(image: str, pages: Path) -> None:
    lines: list[BuildLine] = []
    build = Templates.build(site(image), "site", context=pages, on_line=lines.append)
    assert (build.state, build.tags) == ("ready", ["default"])
    assert any("[1/6] RUN" in line.message and line.step == "1" for line in lines)
    with Sandbox.create(Template("site")) as sandbox:
        assert sandbox.run(ASK).stdout == "first"
        told = sandbox.run("echo $GREETING; echo $PATH; pwd; id -un; cat /counter; ls -a . deep").stdout
        assert told.split()[:6] == ["hello,", "world", "/opt:/bin", "/srv/site", "app", "once"]
        assert sorted(set(told.split()[6:])) == [".", "..", ".:", ".hidden", "deep", "deep:", "page"]
        stats = [sandbox.files.stat(path) for path in ("/srv/site", "/srv/site/page", "/etc/secret")]
        assert [each.owner for each in stats] == ["app", "app", "root"]
        assert stats[2].mode & 0o777 == 0o600
        assert nothing_but(sandbox.id)
    Templates.delete("site")


def nothing_but(sandbox_id: str) -> bool:
    return [info.sandbox_id for info in Sandbox.list()] == [sandbox_id]


def test_a_service_is_there_again_after_a_boot_from_the_disk(image: str, pages: Path) -> None:
    spec = msgspec.structs.replace(
        site(image), start_command=f'echo "$(id -un) $PWD $GREETING" >> /home/app/started; {SERVE}'
    )
    Templates.build(spec, "service", context=pages)
    line = "app /srv/site hello, world\n"
    with Sandbox.create(Template("service")) as first, first.fork()[0] as sandbox:
        sandbox.suspend(memory=False)
        sandbox.resume()
        until(lambda: sandbox.run(ASK).stdout == "first")
        assert sandbox.run("cat /home/app/started").stdout == line * 2
        # without its page it is never ready, and the sandbox can be used all the same
        sandbox.run("mv /srv/site/page /home/app/page")
        sandbox.suspend(memory=False)
        assert sandbox.run("mv /home/app/page /srv/site/page; cat /home/app/started").stdout == line * 3
        until(lambda: sandbox.run(ASK).stdout == "first")
    Templates.delete("service")


def test_steps_are_not_run_again_until_something_before_them_changes(image: str, pages: Path) -> None:
    first = Templates.build(site(image), "cached", context=pages)
    again = Templates.build(site(image), "cached:v2", context=pages)
    assert again.snapshot_id == first.snapshot_id
    (pages / "pages/page").write_text("second")
    lines: list[BuildLine] = []
    changed = Templates.build(site(image), "cached", context=pages, on_line=lines.append)
    assert any(line.message == "steps 1 to 1 were built before" for line in lines)
    assert changed.snapshot_id != first.snapshot_id
    with Sandbox.create(Template("cached")) as sandbox:
        assert sandbox.run(f"cat /counter; {ASK}").stdout == "once\nsecond"
    with Sandbox.create(Template("cached:v2")) as sandbox:
        assert sandbox.run(ASK).stdout == "first"
    lines.clear()
    forced = TemplateSpec(image=image, steps=[RunStep(command="echo $$ > /tmp/x", force=True)])
    snapshots = {Templates.build(forced, "forced").snapshot_id for _ in range(2)}
    assert len(snapshots) == 2
    Templates.delete("cached")
    Templates.delete("forced")


def test_a_step_that_fails_says_which_and_leaves_nothing(image: str) -> None:
    lines: list[BuildLine] = []
    spec = TemplateSpec(image=image, steps=[RunStep(command="echo fine; echo bad >&2; exit 3")])
    with pytest.raises(TemplateBuildError, match="ended with exit code 3: bad"):
        Templates.build(spec, "broken", on_line=lines.append)
    # two pipes: which of them is read first is chance
    assert {(line.level, line.message) for line in lines[-2:]} == {("info", "fine"), ("warn", "bad")}
    (build,) = Templates.get("broken").builds
    assert (build.state, build.step) == ("failed", "1")
    assert "exit code 3" in (build.reason or "")
    assert nothing_runs()
    with pytest.raises(
        TemplateNotFoundError, match="'broken' has no build that is ready: the last one failed"
    ):
        Sandbox.create(Template("broken"))
    with pytest.raises(InvalidSpecError, match="no user"):
        Templates.build(TemplateSpec(image=image, steps=[UserStep(user="nobody-here")]), "broken")
    with pytest.raises(TemplateBuildError, match="start command ended with exit code 7"):
        Templates.build(TemplateSpec(image=image, start_command="exit 7", ready_command="exit 1"), "broken")
    Templates.delete("broken")


def test_a_cancelled_build_leaves_nothing(image: str) -> None:
    async def build() -> None:
        going = asyncio.Event()

        def told(line: BuildLine) -> None:
            if line.message == "going":
                going.set()

        spec = TemplateSpec(image=image, steps=[RunStep(command="echo going; exec sleep 1000")])
        task = asyncio.create_task(AsyncTemplates.build(spec, "endless", on_line=told))
        await asyncio.wait_for(going.wait(), BOUND_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(build())
    assert [build.state for build in Templates.get("endless").builds] == ["cancelled"]
    assert nothing_runs()
    Templates.delete("endless")


BUILDER = """
import sys
from atoll import Templates
from atoll.types import RunStep, TemplateSpec
spec = TemplateSpec(image=sys.argv[1], steps=[RunStep(command="echo going; exec sleep 1000")])
Templates.build(spec, "orphan", on_line=lambda line: print(line.message, flush=True))
"""


@pytest.mark.parametrize("victim", ["builder", "supervisor"])
def test_a_build_ends_with_whoever_does_it_and_with_its_supervisor(image: str, victim: str) -> None:
    builder = subprocess.Popen(
        [sys.executable, "-c", BUILDER, image], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert builder.stdout is not None
        assert builder.stderr is not None
        assert any(line == "going\n" for line in builder.stdout)
        if victim == "builder":
            builder.kill()
        else:
            hello = Supervisor.hello()
            assert hello is not None
            os.kill(hello.pid, signal.SIGKILL)
        # the next supervisor starts with the first question
        until(lambda: states("orphan") == ["failed"])
        until(nothing_runs)
        builder.communicate(timeout=BOUND_S)
    finally:
        builder.kill()
        builder.wait()
    Templates.delete("orphan")


def test_tags_stand_for_builds_and_snapshots_stay_as_long_as_they_are_needed(image: str) -> None:
    first = Templates.build(TemplateSpec(image=image, steps=[RunStep(command="echo 1 > ~/n")]), "numbered")
    Templates.tag("numbered", ["v1", "stable"])
    spec = TemplateSpec(template="numbered:v1", steps=[RunStep(command="echo 2 >> ~/n")])
    second = Templates.build(spec, "numbered")
    assert Templates.resolve("numbered:stable").build_id == first.build_id
    assert Templates.resolve("numbered").build_id == second.build_id
    with pytest.raises(InUseError, match="needed by the template numbered"):
        Snapshots.delete(first.snapshot_id or "")
    with Sandbox.create(Template("numbered:v1")) as old, Sandbox.create(Template("numbered")) as new:
        assert (old.run("cat ~/n").stdout, new.run("cat ~/n").stdout) == ("1\n", "1\n2\n")
        Templates.delete("numbered")
        with pytest.raises(TemplateNotFoundError):
            Templates.resolve("numbered")
        assert new.run("cat ~/n").stdout == "1\n2\n"
    until(lambda: not Snapshots.list())
    with pytest.raises(InvalidSpecError, match="Invalid tag"):
        request_build("fine", tags=["Not fine"])
    with pytest.raises(InvalidSpecError, match="Invalid template name"):
        request_build("../evil")


def test_a_snapshot_of_a_sandbox_becomes_a_template_again_and_again(image: str) -> None:
    with Sandbox.create(image) as sandbox:
        sandbox.run("echo 1 > ~/n").check()
        one = Templates.record("kept", sandbox.snapshot())
        sandbox.run("echo 2 > ~/n").check()
        two = Templates.record("kept", sandbox)
        assert one.template_id == two.template_id
        with pytest.raises(InUseError, match="belongs to a template already"):
            Templates.record("other", two.snapshot_id or "")
        assert Templates.get("kept").builds[0].sandbox_id == sandbox.id
        assert said("template", "record", sandbox.id, "kept:now").strip() == two.template_id
        taken = sandbox.snapshot().snapshot_id
        recorded = said("template", "record", "--snapshot", taken, "kept", "--tag", "then", "--json")
        assert json.loads(recorded)["snapshot_id"] == taken
    with Sandbox.create(Template("kept")) as twin:
        assert twin.run("cat ~/n").stdout == "2\n"
    build = request_build("kept")
    Templates.cancel(build.build_id)
    with pytest.raises(StateError, match="not in waiting state"):
        asyncio.run(begun(build.build_id))
    Templates.delete("kept")
    until(lambda: not Snapshots.list())


def test_a_copy_takes_no_longer_than_its_build_may(image: str, pages: Path) -> None:
    spec = TemplateSpec(image=image, steps=[CopyStep(sources=["pages"], target="/srv", user="root")])
    with pytest.raises(TemplateBuildError, match="the build took too long"):
        Templates.build(spec, "brief", context=pages, timeout_s=0)
    (build,) = Templates.get("brief").builds
    assert (build.state, build.step) == ("failed", "1")
    until(nothing_runs)
    Templates.delete("brief")


def test_a_build_that_was_cancelled_at_its_very_end_is_not_told_to_be_done(image: str) -> None:
    spec = TemplateSpec(image=image, steps=[RunStep(command="echo 1 > ~/n")])
    Templates.build(spec, "late")

    def cancel(line: BuildLine) -> None:
        if "built before" in line.message:
            Templates.cancel(Templates.get("late").builds[-1].build_id)

    with pytest.raises(TemplateBuildError, match="the build is cancelled"):
        Templates.build(spec, "late", on_line=cancel)
    Templates.delete("late")
    until(lambda: not Snapshots.list())


async def begun(build_id: str) -> None:
    await for_servers.carry_out(build_id, TemplateSpec())


STAGES = """
ARG IMAGE
FROM $IMAGE AS build
USER root
RUN mkdir -p /out/sub /usr/lib64 && ln -s usr/lib64 /lib64 && echo one > /out/tool && chmod 4755 /out/tool
RUN echo two > /out/sub/page && chown -R 1234:4321 /out/sub && ln -s tool /out/link && ln -s /out /way

FROM $IMAGE AS unused
RUN exit 1

FROM build AS next
RUN echo three > /out/sub/more

FROM build
COPY --from=next /way/ /srv/
COPY --from=0 --chown=app /out/t*l /opt/renamed
COPY --from=$IMAGE /bin/busybox /opt/
COPY tree /
"""


def test_stages_give_each_other_their_files_with_owners_and_modes(image: str, tmp_path: Path) -> None:
    (tmp_path / "tree/lib64").mkdir(parents=True)
    (tmp_path / "tree/lib64/lib.so").write_text("x")
    (tmp_path / "Dockerfile").write_text(STAGES.replace("--from=$IMAGE", f"--from={image}"))
    arguments = ("template", "build", "--name", "staged", "--build-arg", f"IMAGE={image}", str(tmp_path))
    built = atoll(*arguments)
    assert built.returncode == 0, built.stderr
    assert b"[next 4/4] RUN" in built.stderr
    with Sandbox.create(Template("staged")) as sandbox:
        look = "cd /srv; stat -c '%n %u:%g %a' tool sub sub/more; cat sub/*"
        told = sandbox.run(
            f"{look}; stat -c '%U %a' /opt/renamed/tool /opt/busybox; ls /usr/lib64", user="root"
        )
        assert told.stdout.splitlines() == [
            "tool 0:0 4755",
            "sub 1234:4321 755",
            "sub/more 0:0 644",
            "three",
            "two",
            "app 4755",
            "root 755",
            "lib.so",
        ]
        links = [sandbox.files.stat(path).target for path in ("/srv/link", "/lib64")]
        assert links == ["tool", "usr/lib64"]
    again = atoll(*arguments)
    assert b"the whole template was built before" in again.stderr, again.stderr
    refused = atoll(*arguments, "--target", "unused")
    assert (refused.returncode, b"ended with exit code 1" in refused.stderr) == (125, True), refused.stderr
    said("template", "delete", "staged")
    pruned = said("template", "prune")
    assert pruned.startswith("forgot "), pruned
    assert not json.loads(said("template", "prune", "--json"))["snapshots"]


DOCKERFILE = """
ARG IMAGE
FROM $IMAGE
ARG WHO=nobody
USER root
RUN <<END
set -e
echo "made for $WHO" > /made
mkdir /opt
ln -s opt /tools
END
COPY --chmod=755 serve.sh /tools
COPY pages /srv/site/
WORKDIR /srv/$WHO
ENV NAME=$WHO
USER app
EXPOSE 8000
CMD ["/opt/serve.sh", "8000"]
"""


def test_the_command_line_builds_from_a_dockerfile(image: str, pages: Path) -> None:
    (pages / "Dockerfile").write_text(DOCKERFILE)
    (pages / "serve.sh").write_text('#!/bin/sh\nexec /bin/busybox httpd -f -p "$1" -h /srv/site\n')
    arguments = ("template", "build", "--name", "made", "--ready", ASK, str(pages))
    built = atoll(*arguments, "--build-arg", f"IMAGE={image}", "--build-arg", "WHO=ann")
    assert built.returncode == 0, built.stderr
    assert b"EXPOSE has no effect" in built.stderr
    (row,) = json.loads(said("template", "ls", "--json"))
    assert (row["name"], built.stdout.decode()) == ("made", "made\n")
    with Sandbox.create(Template("made")) as sandbox:
        told = sandbox.run(f"cat /made; pwd; id -un; echo $NAME; {ASK}").stdout
        assert told.splitlines() == ["made for ann", "/srv/ann", "app", "ann", "first"]
    said("template", "tag", "made", "v1")
    assert "v1" in said("template", "ls")
    said("template", "delete", "made")
    refused = atoll(*arguments, "--no-cache", "--timeout", "0", "--build-arg", f"IMAGE={image}")
    assert (refused.returncode, b"--timeout 4h" in refused.stderr) == (125, True), refused.stderr
    refused = atoll(*arguments, "--build-arg", f"IMAGE={image}\nFROM other")
    assert refused.returncode == 125
    assert Images.list()
