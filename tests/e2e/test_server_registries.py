"""Templates of E2B's own SDK from a registry that asks who one is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2b import BuildException, Sandbox, Template
from tests import homes
from tests.e2e.server import Server, serving
from tests.e2e.test_images import shell_layers
from tests.e2e.test_server_tenants import asking, team
from tests.homes import contents_of
from tests.registry import File, ImageSource, Registry
from tests.registry import serving as serving_registry
from tests.registry.images import symlink
from tests.waiting import until

from atoll import Quotas, Teams

PASSWORD = "the-password-that-nobody-finds"
NAME = "ghost.example/app:1"


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[Server, Registry, Path]]:
    """A server for which a registry on loopback, with a login, is ``ghost.example``."""
    with serving_registry() as registry, homes.make_home(own_images=True) as home:
        more = [symlink(f"bin/{name}", "busybox") for name in ("mkdir", "touch")]
        layers = shell_layers([*more, File("etc/marker", b"private")])
        registry.put("app", "1", ImageSource(layers, {"Env": ["PATH=/bin"]}))
        registry.login = ("me", PASSWORD)
        with serving("--map-image", f"ghost.example/={registry.host}/") as running:
            yield running, registry, home


@pytest.fixture(autouse=True)
def client(guarded: tuple[Server, Registry, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("E2B_DEBUG", raising=False)
    for name, value in guarded[0].variables.items():
        monkeypatch.setenv(name, value)


def processes() -> list[bytes]:
    """Arguments and environment of all processes of this host that may be read."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            found.append((path / "cmdline").read_bytes())
            found.append((path / "environ").read_bytes())
        except OSError:
            continue
    return found


def state(info: Any) -> str:
    return str(Template.get_build_status(info).status.value)


def test_credentials_of_a_build_open_its_registry_for_one_team_and_are_nowhere_kept(
    guarded: tuple[Server, Registry, Path],
) -> None:
    server, registry, home = guarded
    with pytest.raises(BuildException, match="could not be pulled") as refused:
        Template.build(Template().from_image(NAME, username="me", password="a-guess-of-mine"), "wrong")
    assert "a-guess" not in str(refused.value)
    registry.gate.clear()
    try:
        template = Template().from_image(NAME, username="me", password=PASSWORD).run_cmd("id -un > ~/me")
        build = Template.build_in_background(template, "private")
        until(lambda: any(b"puller\0fetch" in told for told in processes()))
        assert state(build) in ("building", "waiting")
        assert not [told for told in processes() if PASSWORD.encode() in told]
    finally:
        registry.gate.set()
    until(lambda: state(build) not in ("building", "waiting"))
    assert state(build) == "ready"
    with Sandbox.create("private") as sandbox:
        assert sandbox.files.read("/etc/marker") == "private"
        assert sandbox.files.read("/home/user/me") == "user\n"
    with team("others") as key:
        for name in (NAME, f"@team/{NAME}", "sha256-" + "0" * 64):
            with pytest.raises(BuildException):
                Template.build(Template().from_image(name), "theirs", api_key=key)
        other = Template().from_image(NAME, username="me", password="a-guess-of-mine")
        with pytest.raises(BuildException, match="could not be pulled"):
            Template.build(other, "theirs", api_key=key)
    assert PASSWORD.encode() not in server.log.read_bytes()
    assert [path for path, data in contents_of(home) if PASSWORD.encode() in data] == []


def test_a_service_account_is_a_login_and_keys_that_need_an_exchange_are_refused(
    guarded: tuple[Server, Registry, Path],
) -> None:
    server, registry, _ = guarded
    before, registry.login = registry.login, ("_json_key", '{"type": "service_account"}')
    try:
        account = Template().from_gcp_registry(NAME, service_account_json={"type": "service_account"})
        Template.build(account.run_cmd("true"), "of-an-account")
    finally:
        registry.login = before
    with asking(server, server.key) as client:
        made = client.post("/v3/templates", json={"name": "of-keys"}).json()
        keys = {"type": "aws", "awsAccessKeyId": "a", "awsSecretAccessKey": "b", "awsRegion": "c"}
        answer = client.post(
            f"/v2/templates/{made['templateID']}/builds/{made['buildID']}",
            json={"fromImage": NAME, "fromImageRegistry": keys, "steps": []},
        )
        assert (answer.status_code, "AWS" in answer.json()["message"]) == (501, True)


def test_what_a_team_has_pulled_counts_as_its_disk_and_more_than_is_left_of_it_is_not_pulled(
    guarded: tuple[Server, Registry, Path],
) -> None:
    _, registry, _ = guarded
    for tag, mib in (("thin", 30), ("thick", 150)):
        content = File("etc/content", os.urandom(mib << 20))
        registry.put(
            "app", tag, ImageSource(shell_layers([content]), {"Env": ["PATH=/bin"]}, how=("plain",) * 2)
        )

    def build(tag: str, name: str, key: str) -> None:
        template = Template().from_image(f"ghost.example/app:{tag}", username="me", password=PASSWORD)
        Template.build(template, name, api_key=key)

    with team("hoard", Quotas(disk_mib=160)) as key:
        build("thin", "thin", key)
        until(
            lambda: Teams.use("hoard").disk_bytes >= 30 << 20
        )  # it waits for what is measured, but not for long
        used = Teams.use("hoard").disk_bytes
        assert used < 120 << 20
        with pytest.raises(BuildException, match="MiB of disk that are left"):
            build("thick", "thick", key)
        assert Teams.use("hoard").disk_bytes == used
        Teams.set_quotas("hoard", Quotas(disk_mib=400))
        build("thick", "thick", key)
        until(lambda: Teams.use("hoard").disk_bytes >= 180 << 20)


def test_a_registry_of_this_machine_that_only_a_client_names_is_not_asked(
    guarded: tuple[Server, Registry, Path],
) -> None:
    with serving_registry() as hidden:
        name = hidden.put("app", "1", ImageSource(shell_layers()))
        with pytest.raises(BuildException, match="on this machine or in its network"):
            Template.build(Template().from_image(name), "hidden")
        assert not hidden.asked
