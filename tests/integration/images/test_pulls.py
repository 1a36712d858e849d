"""Pulling images from a registry that each test starts, as the supervisor does: joined to a holder."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.registry import File, ImageSource, index_of, serving
from tests.registry.images import digest, directory
from tests.waiting import until

from atoll.errors import ImageNotFoundError, ImagePullError, QuotaError, UnsupportedError
from atoll.host import is_host_root, puller_path
from atoll.images import Image, Images, PullSettings
from atoll.types import ImageAccess, Progress

BIG = os.urandom(3_000_000)


def images_in(path: Path, **settings: Any) -> Images:
    return Images(path / "images", PullSettings(**settings), "trusted" if is_host_root() else "user")


def silent(_: Progress) -> None:
    pass


async def pulled(path: Path, reference: str, *, newest: bool = False, **settings: Any) -> Image:
    return await images_in(path, **settings).ensure(reference, silent, newest=newest)


def left_over(path: Path) -> list[str]:
    return [
        entry.name for kind in ("layers", "downloads") for entry in (path / "images").glob(f"{kind}/[!.]*")
    ]


def left_in_downloads(path: Path) -> list[Path]:
    return list((path / "images/downloads").glob("*"))


async def test_layers_of_every_packing_come_and_are_stored_once_for_all_images(tmp_path: Path) -> None:
    shared = [File("shared", b"same")]
    first = ImageSource([shared, [File("one", b"1")], [File("two", b"2")]], how=("gzip", "zstd", "plain"))
    second = ImageSource([shared, [File("three", b"3")]])
    with serving() as registry:
        one = await pulled(tmp_path, registry.put("one", "1", first))
        two = await pulled(tmp_path, registry.put("two", "1", second))
        assert registry.blob_requests() == 4 + 2
    assert [
        lower.joinpath(name).read_bytes()
        for lower, name in zip(one.lowers, ("two", "one", "shared"), strict=True)
    ] == [
        b"2",
        b"1",
        b"same",
    ]
    assert one.lowers[-1] == two.lowers[-1]
    assert len(left_over(tmp_path)) == 4


async def test_what_an_image_says_of_its_program_is_taken_over(tmp_path: Path) -> None:
    config = {
        "Env": ["PATH=/app/bin", "EMPTY=", "=odd"],
        "User": "1000:2000",
        "WorkingDir": "/srv",
        "Entrypoint": ["/app/bin/serve"],
        "Cmd": ["--port", "80"],
    }
    with serving() as registry:
        source = ImageSource([[File("a")]], config)
        image = await pulled(tmp_path, registry.put("team/app", "1", source))
        assert image.info.pinned == f"{registry.host}/team/app@{source.digest}"
        again = await pulled(tmp_path, image.info.pinned)
    assert image.info.digest == source.digest.replace(":", "-") == again.info.digest
    assert (image.info.user, image.info.cwd) == ("1000:2000", "/srv")
    assert image.info.env == {"PATH": "/app/bin", "EMPTY": ""}
    assert (image.info.entrypoint, image.info.cmd) == (["/app/bin/serve"], ["--port", "80"])


async def test_of_an_index_the_image_for_this_machine_is_taken(tmp_path: Path) -> None:
    here, there = ImageSource([[File("here")]]), ImageSource([[File("there")]], architecture="riscv64")
    with serving() as registry:
        for source in (here, there):
            registry.put("app", "part", source)
        image = await pulled(tmp_path, registry.put_index("app", "all", index_of(there, here)))
        assert (image.lowers[0] / "here").exists()
        with pytest.raises(UnsupportedError, match="only for linux/riscv64"):
            await pulled(tmp_path, registry.put_index("app", "other", index_of(there)))
        with pytest.raises(UnsupportedError, match="is for linux/riscv64"):
            await pulled(tmp_path, registry.put("app", "single", there))


async def test_a_puller_that_was_killed_is_told_of(tmp_path: Path) -> None:
    with serving() as registry:
        reference = registry.put("app", "1", ImageSource([[File("big", BIG)]]))
        registry.gate.clear()
        work = asyncio.create_task(pulled(tmp_path, reference))
        downloads = os.fsencode(tmp_path / "images/downloads")

        def fetching() -> list[int]:
            return [pid for pid in children() if place_of(pid) == downloads]

        await asyncio.to_thread(until, fetching)
        await asyncio.sleep(0.5)  # it tells every 0.2 s how much has come
        os.kill(fetching()[0], signal.SIGKILL)
        with pytest.raises(
            ImagePullError, match=r"could not be pulled: atoll-puller ended by signal 9 \(try again"
        ):
            await work
        registry.gate.set()


def children() -> list[int]:
    found: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # threads come and go
            found += map(int, path.read_text().split())
    return found


def place_of(pid: int) -> bytes:
    try:
        return os.readlink(f"/proc/{pid}/cwd".encode())
    except OSError:
        return b""


async def test_an_index_that_tells_no_architectures_is_taken_at_its_images_word(tmp_path: Path) -> None:
    here = ImageSource([[File("here")]])
    there = ImageSource([[File("there")]], architecture="riscv64")
    with serving() as registry:
        for source in (here, there):
            registry.put("app", "part", source)
        image = await pulled(tmp_path, registry.put_index("app", "1", index_of(here, told=False)))
        assert (image.lowers[0] / "here").exists()
        with pytest.raises(UnsupportedError, match="is for linux/riscv64"):
            await pulled(tmp_path, registry.put_index("app", "2", index_of(there, told=False)))
        with pytest.raises(UnsupportedError, match="an index without an image"):
            await pulled(tmp_path, registry.put_index("app", "3", index_of()))


async def test_a_connection_that_ends_too_early_is_gone_on_with(tmp_path: Path) -> None:
    with serving() as registry:
        reference = registry.put("app", "1", ImageSource([[File("big", BIG)]], how=("plain",)))
        registry.cut_after = 1_000_000
        image = await pulled(tmp_path, reference)
        assert (image.lowers[0] / "big").read_bytes() == BIG
        assert registry.ranges == ["bytes=1000000-", "bytes=2000000-", "bytes=3000000-"]


async def test_a_pull_that_was_killed_is_gone_on_with_by_the_next_process(tmp_path: Path) -> None:
    with serving() as registry:
        reference = registry.put("app", "1", ImageSource([[File("big", BIG)]], how=("plain",)))
        (name,) = [name for name, blob in registry.blobs.items() if len(blob) > 1_000_000]
        downloads = tmp_path / "images/downloads"
        downloads.mkdir(parents=True)
        (downloads / f"{name.replace(':', '-')}.part").write_bytes(registry.blobs[name][:777_777])
        os.chown(downloads / f"{name.replace(':', '-')}.part", 65534, 65534)
        image = await pulled(tmp_path, reference)
        assert registry.ranges == ["bytes=777777-"]
        assert (image.lowers[0] / "big").read_bytes() == BIG


async def test_a_layer_whose_unpacking_was_killed_is_not_fetched_again(tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    program = tmp_path / "program"
    program.write_text(
        f"#!/bin/sh\n[ $1 = unpack ] && [ ! -e {killed} ] && touch {killed} && kill -9 $$\nexec {puller_path()} $1\n"
    )
    program.chmod(0o755)
    with serving() as registry, patch("atoll.images.puller.puller_path", lambda: program):
        source = ImageSource([[File("big", BIG)]])
        reference = registry.put("app", "1", source)
        with pytest.raises(
            ImagePullError, match=r"ended by signal 9 \(try again: what was downloaded is kept\)"
        ):
            await pulled(tmp_path, reference)
        assert ((await pulled(tmp_path, reference)).lowers[0] / "big").read_bytes() == BIG
        assert registry.asked[f"/v2/app/blobs/{source.layers[0]['digest']}"] == 1


async def test_what_another_pull_has_left_and_is_wrong_is_pulled_again(tmp_path: Path) -> None:
    with serving() as registry:
        reference = registry.put("app", "1", ImageSource([[File("big", BIG)]], how=("plain",)))
        (name,) = [name for name, blob in registry.blobs.items() if len(blob) > 1_000_000]
        downloads = tmp_path / "images/downloads"
        downloads.mkdir(parents=True)
        (downloads / f"{name.replace(':', '-')}.part").write_bytes(bytes(777_777))
        os.chown(downloads / f"{name.replace(':', '-')}.part", 65534, 65534)
        image = await pulled(tmp_path, reference)
        assert registry.ranges == ["bytes=777777-"]
        assert registry.asked[f"/v2/app/blobs/{name}"] == 2
        assert (image.lowers[0] / "big").read_bytes() == BIG


async def test_a_busy_or_failing_registry_is_asked_again(tmp_path: Path) -> None:
    with serving() as registry:
        reference = registry.put("app", "1", ImageSource([[File("a", b"a")]]))
        registry.busy, registry.broken = 2, 1
        image = await pulled(tmp_path, reference)
        assert (image.lowers[0] / "a").read_bytes() == b"a"


async def test_wrong_content_is_never_used_and_not_kept(tmp_path: Path) -> None:
    with serving() as registry:
        source = ImageSource([[File("a", b"a")]])
        reference = registry.put("app", "1", source)
        registry.wrong = {source.layers[0]["digest"]}
        with pytest.raises(ImagePullError, match="instead of sha256:"):
            await pulled(tmp_path, reference)
        registry.wrong = set()
        image = await pulled(tmp_path, reference)
        assert (image.lowers[0] / "a").read_bytes() == b"a"


async def test_a_layer_that_is_not_what_its_configuration_says_is_refused(tmp_path: Path) -> None:
    source = ImageSource([[File("a", b"a")]])
    other = ImageSource([[File("b", b"b")]])
    manifest = json.loads(source.manifest)
    manifest["layers"] = other.layers
    source.manifest = json.dumps(manifest).encode()
    source.blobs |= other.blobs
    source.digest = digest(source.manifest)
    with serving() as registry:
        with pytest.raises(ImagePullError, match="the content has the digest"):
            await pulled(tmp_path, registry.put("app", "1", source))
    assert left_over(tmp_path) == []


async def test_an_image_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    with serving() as registry:
        with pytest.raises(ImageNotFoundError, match="nothing:1"):
            await pulled(tmp_path, f"{registry.host}/nothing:1")


async def test_credentials_come_from_the_docker_configuration_and_its_programs(tmp_path: Path) -> None:
    with serving() as registry:
        reference = registry.put("app", "1", ImageSource([[File("a")]]))
        registry.login = ("me", "secret")
        os.environ["DOCKER_CONFIG"] = str(tmp_path / "docker")
        with pytest.raises(ImagePullError, match="could not be pulled"):
            await pulled(tmp_path, reference)
        programs = tmp_path / "docker"
        programs.mkdir()
        program = programs / "docker-credential-safe"
        program.write_text('#!/bin/sh\necho \'{"Username": "me", "Secret": "secret"}\'\n')
        program.chmod(0o755)
        os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
        (programs / "config.json").write_text(json.dumps({"credHelpers": {registry.host: "safe"}}))
        assert await pulled(tmp_path, reference)


async def test_blobs_that_are_elsewhere_come_from_there_and_credentials_do_not_go_there(
    tmp_path: Path,
) -> None:
    big = os.urandom(9_000_000)
    with serving() as registry:
        reference = registry.put("app", "1", ImageSource([[File("big", big)]], how=("plain",)))
        registry.elsewhere = True
        registry.login = ("me", "secret")
        auth = {"auths": {registry.host: {"auth": base64.b64encode(b"me:secret").decode()}}}
        (tmp_path / "config.json").write_text(json.dumps(auth))
        os.environ["DOCKER_CONFIG"] = str(tmp_path)
        image = await pulled(tmp_path, reference)
        assert (image.lowers[0] / "big").read_bytes() == big
        assert not registry.betrayed


async def test_a_registry_is_trusted_by_the_certificates_of_the_host(tmp_path: Path) -> None:
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=ghost -addext subjectAltName=IP:127.0.0.1"
    out = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "ca")]
    subprocess.run([*command.split(), *out], check=True, capture_output=True, timeout=120)  # noqa: ASYNC221
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "ca", tmp_path / "key")
    with serving(tls) as registry:
        reference = registry.put("app", "1", ImageSource([[File("a")]]))
        os.environ.pop("SSL_CERT_FILE", None)
        with pytest.raises(ImagePullError, match="could not be pulled"):
            await pulled(tmp_path, reference)
        os.environ["SSL_CERT_FILE"] = str(tmp_path / "ca")
        assert await pulled(tmp_path, reference)


async def test_a_mirror_is_asked_first_and_the_registry_where_it_fails(tmp_path: Path) -> None:
    both, only = ImageSource([[File("a")]]), ImageSource([[File("b")]])
    with serving() as registry, serving() as mirror:
        mirrors = {registry.host: [f"{mirror.host}/cache"]}
        reference = registry.put("app", "1", both)
        mirror.put("cache/app", "1", both)
        await pulled(tmp_path, reference, mirrors=mirrors)
        assert (registry.blob_requests(), mirror.blob_requests()) == (0, 2)
        await pulled(tmp_path, registry.put("app", "2", only), mirrors=mirrors)
        assert registry.blob_requests() == 2


async def test_callers_at_once_pull_an_image_once(tmp_path: Path) -> None:
    with serving() as registry:
        reference = registry.put("app", "1", ImageSource([[File("a")], [File("b")]]))
        images = await asyncio.gather(*(pulled(tmp_path, reference) for _ in range(4)))
        assert len({image.info.digest for image in images}) == 1
        assert set(registry.asked.values()) == {1}
    assert list((tmp_path / "images/.pulls").iterdir()) == [], "no lock stays"


async def test_a_tag_that_has_moved_is_followed_only_when_asked(tmp_path: Path) -> None:
    with serving() as registry:
        reference = registry.put("app", "new", ImageSource([[File("old")]]))
        old = await pulled(tmp_path, reference)
        registry.put("app", "new", ImageSource([[File("new")]]))
        assert (await pulled(tmp_path, reference)).info == old.info
        new = await pulled(tmp_path, reference, newest=True)
        assert (new.lowers[0] / "new").exists()
        assert images_in(tmp_path).get(old.info.digest), "sandboxes may stand on it"


async def test_a_removed_image_takes_only_its_own_layers_with_it(tmp_path: Path) -> None:
    shared = [File("shared")]
    with serving() as registry:
        one = await pulled(tmp_path, registry.put("one", "1", ImageSource([shared, [File("a")]])))
        two = await pulled(tmp_path, registry.put("two", "1", ImageSource([shared, [File("b")]])))
    images = images_in(tmp_path)
    await images.remove(one.info.name)
    assert images.get(one.info.name) is None
    assert images.get(two.info.name) == two
    assert sorted(left_over(tmp_path)) == sorted(two.info.layers)
    await images.remove(two.info.name)
    assert left_over(tmp_path) == []


async def test_what_a_removed_image_had_can_be_taken_away_to_be_erased_later(tmp_path: Path) -> None:
    shared = [File("shared")]
    with serving() as registry:
        one = await pulled(tmp_path, registry.put("one", "1", ImageSource([shared, [File("a")]])))
        two = await pulled(tmp_path, registry.put("two", "1", ImageSource([shared, [File("b")]])))
    images, trash = images_in(tmp_path), tmp_path / "trash"
    trash.mkdir()
    await images.remove(one.info.name, take=lambda path: path.rename(trash / path.name))
    assert sorted(left_over(tmp_path)) == sorted(two.info.layers)
    (layer,) = trash.rglob("a")
    assert layer.parent.parent == trash, "its files are there still, and no others"
    assert images.get(two.info.name) == two and not images.unneeded(set())


async def test_an_image_that_homes_share_is_forgotten_by_name_only(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    for home in ("one", "two"):
        (tmp_path / home).mkdir()
        (tmp_path / home / "images").symlink_to(tmp_path / "shared")
    with serving() as registry:
        image = await pulled(tmp_path / "one", registry.put("app", "1", ImageSource([[File("a")]])))
    await images_in(tmp_path / "two").remove(image.info.name)
    assert images_in(tmp_path / "one").get(image.info.name) is None
    assert images_in(tmp_path / "one").get(image.info.digest) and (image.lowers[0] / "a").exists()


async def test_a_layer_that_others_need_on_top_is_kept_and_goes_with_its_image(tmp_path: Path) -> None:
    below, above = [directory("d", uid=7), directory("d/e", mode=0o700)], [File("d/e/f")]
    with serving() as registry:
        one = await pulled(tmp_path, registry.put("one", "1", ImageSource([below, above])))
        two = await pulled(tmp_path, registry.put("two", "1", ImageSource([below, above], {"User": "9"})))
    assert one.info.digest != two.info.digest
    assert one.lowers == two.lowers and len(one.lowers) == 3
    images = images_in(tmp_path)
    await images.remove(one.info.name)
    assert list(images.unneeded(set())) == []
    assert images.get(two.info.name) == two
    await images.remove(two.info.name)
    assert left_over(tmp_path) == []


async def test_layers_of_no_image_and_old_downloads_are_found_and_collected(tmp_path: Path) -> None:
    with serving() as registry:
        image = await pulled(tmp_path, registry.put("app", "1", ImageSource([[File("a")]])))
    images = images_in(tmp_path)
    assert list(images.unneeded(set())) == []
    lost = tmp_path / "images/layers" / f"sha256-{'0' * 64}"
    lost.mkdir()
    old, young = (tmp_path / "images/downloads" / name for name in ("sha256-1.part", "sha256-2.part"))
    old.parent.mkdir()
    for part in (old, young):
        part.touch()
    os.utime(old, (time.time() - 90_000,) * 2)
    found = list(images.unneeded(set()))
    assert found == sorted([lost, old])
    for path in found:
        images.collect(path, set())
    assert images.get(image.info.name) == image
    assert young.exists()


async def test_an_image_bigger_than_allowed_is_refused_before_and_while_it_unpacks(tmp_path: Path) -> None:
    bomb = ImageSource([[File("zeroes", bytes(40_000_000))]])
    with serving() as registry:
        reference = registry.put("bomb", "1", bomb)
        with pytest.raises(ImagePullError, match="more than the 1000000 bytes"):
            await pulled(tmp_path, reference, most_bytes=1_000_000)
        assert left_over(tmp_path) == []
        with pytest.raises(ImagePullError, match="more than the 2 files"):
            many = ImageSource([[File("a"), File("b"), File("c")]])
            await pulled(tmp_path, registry.put("many", "1", many), most_entries=2)
        with pytest.raises(ImagePullError, match="bytes to download"):
            await pulled(tmp_path, reference, most_bytes=1000)


async def test_what_a_team_had_pulled_is_its_own_to_pay_for_and_to_give_up(tmp_path: Path) -> None:
    shared = [File("shared", os.urandom(2_000_000))]
    images = images_in(tmp_path)

    async def ensure(name: str, **more: Any) -> Image:
        return await images.ensure(name, silent, **more)

    reef, other = ImageAccess(team="reef"), ImageAccess(team="other")
    with serving() as registry:
        name = registry.put("one", "1", ImageSource([shared, [File("a", b"1")]]))
        one = await ensure(name, access=reef)
        assert (await ensure(name, access=other)).info.pulled_for == "reef"
        await ensure(name)  # the home's owner has it, too, and shares nothing of it with teams
        moved = registry.put("one", "1", ImageSource([shared, [File("a", b"2")]]))
        for small, match in ((1000, "0 MiB of disk"), (2_000_500, "1 MiB of disk that are left .* 'other'")):
            wanted = registry.put("big", str(small), ImageSource([[File("b", bytes(2_000_000 + small))]]))
            with pytest.raises(QuotaError, match=match):
                await ensure(wanted, access=other, most_bytes=small)
        assert left_in_downloads(tmp_path) == []
        registry.gate.clear()
        cut = registry.put("cut", "1", ImageSource([[File("c", BIG)]]))
        leaving = asyncio.create_task(ensure(cut, access=other))
        await asyncio.to_thread(until, lambda: any((tmp_path / "images/downloads").rglob("sha256-*")))
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        registry.gate.set()
        assert left_in_downloads(tmp_path) == [], "what no quota counts"
        await ensure(moved, access=other, newest=True, most_bytes=1_000_000)  # of which only a little is new
    assert [image.info.digest for image in images.pulled_for("reef")] == [one.info.digest], (
        "without a name, too"
    )
    (two,) = images.pulled_for("other")
    assert one.lowers[1] == two.lowers[1]
    assert images.give_up(one.info.digest)
    assert not one.lowers[0].exists() and two.lowers[1].exists()
    assert (list(images.pulled_for("reef")), images.get(two.info.digest)) == ([], two)
    assert images.give_up(two.info.digest)
    assert [info.pulled_for for info in images.list()] == [None]


async def test_a_pull_that_ends_takes_nothing_from_another_one(tmp_path: Path) -> None:
    images, reef, other = images_in(tmp_path), ImageAccess(team="reef"), ImageAccess(team="other")
    with serving() as registry:
        slow = registry.put("app", "slow", ImageSource([[File("big", BIG)]]))
        refused = registry.put("app", "big", ImageSource([[File("big", BIG)], [File("a")]]))
        quick = registry.put("app", "quick", ImageSource([[File("b")]]))
        registry.gate.clear()
        going_on = asyncio.create_task(images.ensure(slow, silent, access=reef))
        await asyncio.to_thread(until, lambda: any((tmp_path / "images/downloads").rglob("sha256-*")))
        with pytest.raises(QuotaError):
            await images.ensure(refused, silent, access=other, most_bytes=1000)
        assert left_in_downloads(tmp_path) != []
        second = asyncio.create_task(images.ensure(quick, silent, access=other))
        registry.gate.set()
        assert ((await going_on).lowers[0] / "big").read_bytes() == BIG
        assert ((await second).lowers[0] / "b").exists()
    assert registry.blob_requests() == 5, "three configurations and two layers, each once"
    assert left_in_downloads(tmp_path) == []


async def test_progress_tells_bytes_and_layers(tmp_path: Path) -> None:
    reports: list[Progress] = []
    with serving() as registry:
        reference = registry.put("app", "1", ImageSource([[File("big", BIG)], [File("a")]]))
        total = sum(layer["size"] for layer in json.loads(registry.manifests["app", "1"][1])["layers"])
        await images_in(tmp_path).ensure(reference, reports.append)
    downloads = [report for report in reports if report.unit == "bytes"]
    assert downloads[-1].done == downloads[-1].total == total
    assert [report.done for report in reports if report.unit == "layers"] == [0, 1, 2]
    wholes: list[Any] = [report.whole for report in reports]
    assert wholes == sorted(wholes) and (wholes[0], wholes[-1]) == (0, 1)
