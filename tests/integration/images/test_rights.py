"""Images pulled with the credentials of a team are that team's alone."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path

import pytest
from tests.integration.images.test_pulls import images_in, pulled, silent
from tests.registry import File, ImageSource, Registry, serving
from tests.registry.images import digest

from atoll.errors import AtollError, ImageNotFoundError, ImagePullError
from atoll.images import Image
from atoll.types import ImageAccess, RegistryLogin

PASSWORD = "hunter2-of-the-team"
RIGHT = RegistryLogin(username="me", password=PASSWORD)
WRONG = RegistryLogin(username="me", password="a-guess-of-somebody")


async def asked(
    home: Path, name: str, team: str, login: RegistryLogin | None = None, *, trusted: bool = False
) -> Image:
    access = ImageAccess(team=team, login=login, trusted=trusted)
    return await images_in(home).ensure(name, silent, access=access)


def private(registry: Registry) -> str:
    registry.login = ("me", PASSWORD)
    return registry.put("app", "1", ImageSource([[File("secret", b"s")]], how=("plain",)))


def log_in_here(path: Path, registry: Registry) -> None:
    auth = {"auths": {registry.host: {"auth": base64.b64encode(f"me:{PASSWORD}".encode()).decode()}}}
    path.mkdir()
    (path / "config.json").write_text(json.dumps(auth))
    os.environ["DOCKER_CONFIG"] = str(path)


async def test_credentials_of_a_team_bring_an_image_for_that_team_alone(tmp_path: Path) -> None:
    with serving() as registry:
        name = private(registry)
        image = await asked(tmp_path, name, "ants", RIGHT)
        assert (image.lowers[0] / "secret").read_bytes() == b"s"
        assert image.info.team == "ants"
        assert await asked(tmp_path, name, "ants") == image
        for login in (None, WRONG):
            with pytest.raises(ImagePullError, match="could not be pulled"):
                await asked(tmp_path, name, "bees", login)
        for other in (image.info.digest, f"@ants/{name}", "sha256-" + image.info.digest[::-1][:64]):
            with pytest.raises(AtollError):
                await asked(tmp_path, other, "bees")
        with pytest.raises(ImagePullError, match="could not be pulled") as refused:
            await asked(tmp_path, name, "ants", WRONG)
        told = base64.b64encode(f"{WRONG.username}:{WRONG.password}".encode()).decode()
        assert "not … me:…" in str(refused.value)
        assert not [secret for secret in (WRONG.password, told) if secret in str(refused.value)]
        asked_before = registry.blob_requests()
        other_image = await asked(tmp_path, name, "bees", RIGHT)
        assert other_image.info.digest != image.info.digest
        assert registry.blob_requests() == 2 * asked_before
    images = images_in(tmp_path)
    assert [info.name for info in images.list()] == [f"@ants/{name}", f"@bees/{name}"]
    await images.forget_team("ants")
    assert [info.name for info in images.list()] == [f"@bees/{name}"]
    assert not image.lowers[0].exists()
    for path in tmp_path.rglob("*"):  # noqa: ASYNC240
        if path.is_file() and not path.is_symlink():
            assert PASSWORD.encode() not in path.read_bytes()


async def test_the_login_of_the_host_opens_nothing_to_teams(tmp_path: Path) -> None:
    with serving() as registry:
        name = private(registry)
        log_in_here(tmp_path / "docker", registry)
        assert await pulled(tmp_path, name)
        with pytest.raises(ImagePullError, match="could not be pulled"):
            await asked(tmp_path, name, "ants")
        assert await asked(tmp_path, name, "ants", trusted=True)
        registry.login = None
        open_to_all = registry.put("open", "1", ImageSource([[File("a")]]))
        image = await asked(tmp_path, open_to_all, "ants")
        assert image.info.team is None
        assert (await asked(tmp_path, open_to_all, "bees")).info.digest == image.info.digest


async def test_a_team_reads_nothing_of_the_machines_network_in_a_failed_pull(tmp_path: Path) -> None:
    nobody = "127.0.0.1:1/app:1"
    with pytest.raises(ImagePullError, match="dial tcp 127.0.0.1:1"):
        await pulled(tmp_path, nobody)
    with pytest.raises(ImagePullError, match="failed: connection refused") as refused:
        await asked(tmp_path, nobody, "ants")
    assert "dial" not in refused.value.message


async def test_a_team_gets_no_layer_by_saying_that_its_image_has_it(tmp_path: Path) -> None:
    source = ImageSource([[File("secret", b"s")]], how=("plain",))
    with serving() as registry:
        registry.login = ("me", PASSWORD)
        await asked(tmp_path, registry.put("app", "1", source), "ants", RIGHT)
        await pulled_with_login(tmp_path, registry, source)
        registry.login = None
        # the same description of a layer, which this one cannot give
        del registry.blobs[source.layers[0]["digest"]]
        for team in ("bees", "wasps"):
            with pytest.raises((ImagePullError, ImageNotFoundError)):
                await asked(tmp_path, registry.put("mine", "1", without(source)), team)


async def pulled_with_login(path: Path, registry: Registry, source: ImageSource) -> None:
    log_in_here(path / "docker", registry)
    assert await pulled(path, registry.put("app", "1", source))


def without(source: ImageSource) -> ImageSource:
    """An image that names the layers of another one and has none of them."""
    manifest = json.loads(source.manifest)
    manifest["annotations"] = {"by": "somebody"}
    claimed = ImageSource([])
    claimed.manifest = json.dumps(manifest).encode()
    claimed.digest = digest(claimed.manifest)
    claimed.blobs = {manifest["config"]["digest"]: source.blobs[manifest["config"]["digest"]]}
    return claimed


async def test_a_registry_that_holds_a_layer_back_holds_up_no_pull_from_another_one(tmp_path: Path) -> None:
    source = ImageSource([[File("a", b"a")]])
    with serving() as slow, serving() as quick:
        slow.gate.clear()
        waiting = asyncio.create_task(asked(tmp_path, slow.put("app", "1", source), "ants"))
        while not list((tmp_path / "images").rglob("*.part")):  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
        image = await asked(tmp_path, quick.put("app", "1", source), "bees")
        assert (image.lowers[0] / "a").read_bytes() == b"a"
        assert not waiting.done()
        slow.gate.set()
        assert (await waiting).lowers == image.lowers
    assert list((tmp_path / "images/downloads").glob("*")) == []


async def test_credentials_do_not_go_where_a_registry_sends_requests(tmp_path: Path) -> None:
    with serving() as registry:
        name = private(registry)
        registry.elsewhere = True
        image = await asked(tmp_path, name, "ants", RIGHT)
        assert (image.lowers[0] / "secret").read_bytes() == b"s"
        assert not registry.betrayed
