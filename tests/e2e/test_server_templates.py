"""Templates as E2B's own SDK builds and uses them."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2b import BuildException, Sandbox, SandboxException, Template, TemplateException
from e2b.template.types import TemplateBuildStatus
from tests import homes
from tests.e2e.server import Server, serving
from tests.e2e.test_images import shell_layers
from tests.registry import File, ImageSource
from tests.registry import serving as serving_registry
from tests.registry.images import symlink
from tests.waiting import BOUND_S, until

from atoll import Sandbox as Local
from atoll import Templates
from atoll.types import RunStep, TemplateSpec


@pytest.fixture(autouse=True)
def client(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("E2B_DEBUG", raising=False)
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)


def asked(server: Server, method: str, path: str, body: object = None) -> tuple[int, Any]:
    request = urllib.request.Request(
        server.url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"X-API-Key": server.key, "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=BOUND_S) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_a_template_of_the_sdk_has_its_service_running_at_once(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/page").write_text("hello")
    (tmp_path / "config.json").write_text("{}")
    lines: list[str] = []
    template = (
        Template(file_context_path=str(tmp_path))
        .from_image("ubuntu:22.04")
        .set_envs({"COLOR": "blue", "SHADE": "dark $COLOR"})
        .copy("site", "/srv/site/")
        .copy("config.json", "/etc/app/config.json", user="root", mode=0o600)
        .set_workdir("/srv/site")
        .run_cmd(["id -un > who", "pwd >> who"])
        .run_cmd("touch /root-was-here", user="root")
        .set_start_cmd(
            "python3 -m http.server 8000 --directory /srv/site", "curl -sf http://localhost:8000/page"
        )
    )
    info = Template.build(
        template,
        "web-site:v1",
        cpu_count=1,
        memory_mb=512,
        on_build_logs=lambda entry: lines.append(entry.message),
    )
    assert info.tags == ["v1"]
    assert any("RUN id -un" in line for line in lines)
    with Sandbox.create("web-site:v1") as sandbox:
        told = sandbox.commands.run(
            "curl -s http://localhost:8000/page; cat who; id -un; pwd; echo $SHADE; ls /root-was-here"
        ).stdout
        assert told.split() == [
            "hellouser",
            "/srv/site",
            "user",
            "/srv/site",
            "dark",
            "blue",
            "/root-was-here",
        ]
        detail = sandbox.commands.run("stat -c '%U %a' /etc/app/config.json; stat -c %U page").stdout
        assert detail.split() == ["root", "600", "user"]
    with Sandbox.create(info.template_id + ":v1") as sandbox:
        assert sandbox.files.exists("/srv/site/page")
    lines.clear()
    Template.build(template, "web-site:v2", on_build_logs=lambda entry: lines.append(entry.message))
    (tmp_path / "site/page").write_text("changed")
    Template.build(template, "web-site", tags=["v3", "latest"])
    with Sandbox.create("web-site:latest") as sandbox:
        assert sandbox.commands.run("curl -s http://localhost:8000/page").stdout == "changed"
    assert {tag.tag for tag in Template.get_tags("web-site")} == {"v1", "v2", "v3", "latest"}
    delete("web-site")


def delete(name: str) -> None:
    from atoll import Templates

    (info,) = [info for info in Templates.list(team="default") if info.name == name]
    Templates.delete(info.template_id)


def test_a_build_that_fails_says_where_and_shows_its_log() -> None:
    template = (
        Template().from_base_image().run_cmd("echo fine").run_cmd("echo so far; echo bad news >&2; exit 4")
    )
    lines: list[tuple[str, str]] = []
    with pytest.raises(BuildException, match="exit code 4: bad news"):
        Template.build(
            template, "broken", on_build_logs=lambda entry: lines.append((entry.level, entry.message))
        )
    assert ("info", "so far") in lines
    assert ("warn", "bad news") in lines
    info = Template.build_in_background(template, "broken")
    until(lambda: Template.get_build_status(info).status is TemplateBuildStatus.ERROR)
    status = Template.get_build_status(info)
    assert status.reason is not None
    assert status.reason.step == "2"
    assert "bad news" in [entry.message for entry in status.reason.log_entries]
    with serving() as restarted:
        path = f"/templates/{info.template_id}/builds/{info.build_id}/logs"
        told = [entry["message"] for entry in asked(restarted, "GET", path)[1]["logs"]]
    assert "so far" in told and "bad news" in told
    with pytest.raises(SandboxException, match="template 'broken' not found"):
        Sandbox.create("broken")
    assert not list(Local.list())
    delete("broken")


def test_a_background_build_is_ended_with_its_template_and_leaves_nothing(server: Server) -> None:
    template = Template().from_base_image().run_cmd("echo going; exec sleep 1000")
    info = Template.build_in_background(template, "endless")
    until(lambda: "going" in [entry.message for entry in Template.get_build_status(info).log_entries])
    assert Template.get_build_status(info).status is TemplateBuildStatus.BUILDING
    assert len(list(Local.list())) == 1
    assert asked(server, "GET", "/v2/sandboxes") == (200, [])
    assert asked(server, "DELETE", f"/templates/{info.template_id}") == (204, None)
    assert not list(Local.list())
    assert asked(server, "DELETE", f"/templates/{info.template_id}")[0] == 404


def test_base_is_the_operators_fuller_template_if_there_is_one(server: Server) -> None:
    Templates.build(TemplateSpec(steps=[RunStep(command="touch ~/gcc")]), "developer", public=True)
    try:
        with Sandbox.create() as made:
            assert made.files.exists("gcc")
            assert made.get_info().name == "base"
        Template.build(Template().from_base_image().run_cmd("mv ~/gcc ~/built"), "on-base")
        with Sandbox.create("on-base") as made:
            assert made.files.exists("built")
    finally:
        Templates.delete("developer")
    with Sandbox.create() as made:
        assert not made.files.exists("gcc")


def test_names_and_tags(server: Server) -> None:
    assert not Template.alias_exists("numbered")
    first = Template.build(Template().from_base_image().run_cmd("echo 1 > ~/n"), "numbered")
    assert Template.alias_exists("numbered")
    assert Template.exists("numbered")
    Template.build(Template().from_template("numbered").run_cmd("echo 2 >> ~/n"), "numbered", tags=["second"])
    assigned = Template.assign_tags("numbered:default", ["stable", "v1"])
    assert (sorted(assigned.tags), assigned.build_id) == (["stable", "v1"], first.build_id)
    with (
        Sandbox.create(f"numbered:{first.build_id}") as old,
        Sandbox.create("default/numbered:second") as new,
    ):
        assert old.commands.run("cat ~/n").stdout == "1\n"
        assert new.commands.run("cat ~/n").stdout == "1\n2\n"
    Template.remove_tags("numbered", ["v1"])
    assert {tag.tag for tag in Template.get_tags("numbered")} == {"default", "second", "stable"}
    with pytest.raises(SandboxException, match="tag 'v1' does not exist for template 'numbered'"):
        Sandbox.create("numbered:v1")
    with pytest.raises(SandboxException, match="template 'unnumbered:v1' not found"):
        Sandbox.create("unnumbered:v1")
    with pytest.raises(TemplateException, match="Cannot delete the 'default' tag"):
        Template.remove_tags("numbered", ["default"])
    with pytest.raises(TemplateException, match="Invalid tag"):
        Template.assign_tags("numbered", ["Bad tag"])
    path = f"/templates/{first.template_id}"
    status, detail = asked(server, "GET", path)
    assert (status, detail["names"], len(detail["builds"])) == (200, ["default/numbered"], 2)
    assert asked(server, "PATCH", f"/v2{path}", {"public": True})[0] == 200
    assert asked(server, "GET", "/templates/aliases/numbered")[1] == {
        "templateID": first.template_id,
        "public": True,
    }
    assert [row["templateID"] for row in asked(server, "GET", "/v2/templates?limit=1")[1]] == [
        first.template_id
    ]
    assert asked(server, "DELETE", "/templates/default%2Fnumbered:stable")[0] == 204
    assert asked(server, "DELETE", path)[0] == 204
    assert asked(server, "GET", path)[0] == 404


@pytest.mark.parametrize(
    "method, path, body, status, message",
    [
        ("POST", "/v3/templates", {}, 400, "Name is required"),
        ("POST", "/v3/templates", {"name": "Bad Name"}, 400, "Invalid template name"),
        ("POST", "/v3/templates", {"name": "good", "tags": ["B"]}, 400, "Invalid tag: 'B'"),
        ("POST", "/v3/templates", {"name": "../../evil"}, 400, "Invalid template name"),
        ("POST", "/v3/templates", {"name": "other/good"}, 400, "Invalid template name"),
        ("POST", "/templates/tags", {"target": "good:", "tags": ["x"]}, 400, "Invalid template name"),
        (
            "POST",
            "/templates/tags",
            {"target": "nothing", "tags": ["x"]},
            404,
            "template 'nothing' not found",
        ),
        ("GET", "/templates/aliases/nothing", None, 404, "template 'nothing' not found"),
        ("GET", "/templates/nothing/builds/x/status", None, 404, "template 'nothing' not found"),
    ],
)
def test_what_makes_no_sense_is_refused(
    server: Server, method: str, path: str, body: object, status: int, message: str
) -> None:
    code, answer = asked(server, method, path, body)
    assert code == status
    assert message in answer["message"]


def test_uploads_need_a_signed_address_and_builds_begin_once(server: Server) -> None:
    _, requested = asked(server, "POST", "/v3/templates", {"name": "steps"})
    template, build = requested["templateID"], requested["buildID"]
    digest = "a" * 64
    _, where = asked(server, "GET", f"/templates/{template}/files/{digest}")
    assert where["present"] is False
    forged = where["url"].replace(digest, "b" * 64)
    assert put(forged, b"x") == 403
    assert put(where["url"].partition("?")[0], b"x") == 403
    assert asked(server, "GET", f"/templates/{template}/files/..%2Fsecret")[0] in (400, 404)
    assert put(where["url"], b"this is no tar " * 100) == 200
    assert asked(server, "GET", f"/templates/{template}/files/{digest}")[1]["present"] is True
    path = f"/v2/templates/{template}/builds/{build}"
    bad = {"fromImage": "ubuntu:22.04", "steps": [{"type": "JUMP", "args": []}]}
    assert asked(server, "POST", path, bad)[0] == 400
    copy = {"type": "COPY", "args": ["a", "/b"], "filesHash": digest}
    assert asked(server, "POST", path, {"fromImage": "ubuntu:22.04", "steps": [copy]})[0] == 202
    again = asked(server, "POST", path, {"fromImage": "ubuntu:22.04", "steps": []})
    assert (again[0], again[1]["message"]) == (400, "build is not in waiting state")
    status = f"/templates/{template}/builds/{build}/status"
    until(lambda: asked(server, "GET", status)[1]["status"] == "error")
    assert "not a tar" in asked(server, "GET", status)[1]["reason"]["message"]
    assert asked(server, "DELETE", f"/templates/{template}")[0] == 204


def put(url: str, data: bytes) -> int:
    request = urllib.request.Request(url, method="PUT", data=data)
    try:
        with urllib.request.urlopen(request, timeout=BOUND_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.fixture(scope="module")
def shell_server() -> Iterator[tuple[Server, str]]:
    """A server over a home of its own, and an image of a registry that has no account for E2B's user."""
    before = os.environ["ATOLL_HOME"]
    with serving_registry() as registry, homes.make_home(own_images=True):
        more = [symlink(f"bin/{name}", "busybox") for name in ("mkdir", "touch")]
        layers = shell_layers([*more, File("etc/marker", b"registry")])
        reference = registry.put("plain", "1", ImageSource(layers, {"Env": ["PATH=/bin"]}))
        with serving("--map-image", f"docker.io/={reference.partition('/')[0]}/") as running:
            yield running, reference
    os.environ["ATOLL_HOME"] = before


def test_any_image_of_a_registry_gets_the_user_that_clients_expect(
    shell_server: tuple[Server, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = shell_server
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    template = (
        Template().from_image("plain:1").run_cmd("id -un > ~/me").run_cmd("id -un > /them", user="root")
    )
    Template.build(template, "mapped")
    with Sandbox.create("mapped") as sandbox:
        paths = ("/home/user/me", "/them", "/etc/marker")
        assert [sandbox.files.read(path) for path in paths] == ["user\n", "root\n", "registry"]
        assert sandbox.files.get_info("me").owner == "user"
