"""Builds that go well, fail, crash, are cancelled, or come two at a time; with a program in mmdebstrap's place."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from tests.integration.images.fakebuilder import FakeBuilder

from atoll.errors import HostError, ImageBuildError, ImageNotFoundError, InvalidSpecError
from atoll.images import Images
from atoll.types import Progress

PATIENCE_S = 90.0


def ignore(_: Progress) -> None:
    """Take a report and do nothing."""


async def test_two_builders_at_once_build_once(builder: FakeBuilder) -> None:
    builder.put_good()
    first, second = await asyncio.gather(
        builder.images.ensure("base", ignore), Images(builder.directory).ensure("base", ignore)
    )
    assert first == second
    assert builder.calls == 1


async def test_a_failed_build_says_why_and_leaves_nothing(builder: FakeBuilder) -> None:
    builder.put("mkdir $rootfs; seq 100; echo 'E: Failed to fetch it' >&2; exit 7")
    with pytest.raises(ImageBuildError) as caught:
        await builder.images.ensure("base", ignore)
    assert "ended with 7" in caught.value.message
    assert "\n82\n" in caught.value.message
    assert "\n81\n" not in caught.value.message
    assert "Failed to fetch it" in caught.value.message
    assert "mirror" in (caught.value.hint or "")
    assert builder.left() == [".lock"]
    builder.put_good()
    await builder.images.ensure("base", ignore)


async def test_a_crashed_build_is_cleared_away_by_the_next(builder: FakeBuilder) -> None:
    (builder.directory / "build-crashed/rootfs/etc").mkdir(parents=True)
    half = builder.directory / ("sha256-" + "0" * 64)
    half.mkdir()
    builder.put_good()
    assert builder.images.list() == []
    image = await builder.images.ensure("base", ignore)
    assert not (builder.directory / "build-crashed").exists()
    assert builder.images.list() == [image.info]
    assert builder.images.get(half.name) is None


async def test_a_cancelled_build_ends_its_program_and_leaves_nothing(builder: FakeBuilder) -> None:
    lock = builder.directory.parent / "alive"
    builder.put(f"exec 9>{lock}; flock 9; echo ready >{lock}.ready; sleep 1000 9>&9")
    task = asyncio.create_task(builder.images.ensure("base", ignore))
    async with asyncio.timeout(PATIENCE_S):
        while not lock.with_suffix(".ready").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        # The lock is free once every process of the build is gone.
        ended = await asyncio.create_subprocess_exec("flock", str(lock), "true")
        assert await ended.wait() == 0
    assert builder.left() == [".lock"]


async def test_another_recipe_builds_anew_and_keeps_the_old_image(builder: FakeBuilder) -> None:
    builder.put_good()
    image = await builder.images.ensure("base", ignore)
    index = builder.directory / "index.json"
    index.write_text(index.read_text().replace('"fingerprint":"', '"fingerprint":"0'))
    assert (await builder.images.ensure("base", ignore)).info.digest == image.info.digest
    assert builder.calls == 2
    assert builder.images.get(image.info.digest)


async def test_a_removed_image_is_gone_and_can_be_built_again(builder: FakeBuilder) -> None:
    builder.put_good()
    image = await builder.images.ensure("base", ignore)
    await builder.images.remove("base")
    assert builder.images.list() == []
    assert not image.lowers[0].exists()
    with pytest.raises(ImageNotFoundError):
        await builder.images.remove("base")
    await builder.images.ensure("base", ignore)
    assert builder.calls == 2


async def test_homes_can_share_a_directory_of_images(builder: FakeBuilder, tmp_path: Path) -> None:
    builder.put_good()
    image = await builder.images.ensure("base", ignore)
    (tmp_path / "link").symlink_to(builder.directory)
    again = await Images(tmp_path / "link").ensure("base", ignore)
    assert again.info == image.info
    assert again.lowers[0].is_dir()
    assert builder.calls == 1


async def test_a_name_that_no_image_can_have_is_refused(builder: FakeBuilder) -> None:
    with pytest.raises(InvalidSpecError, match="base"):
        builder.images.get("../base")


async def test_what_names_no_image_is_an_error_with_the_name_of_the_known_one(builder: FakeBuilder) -> None:
    for name in ("../base", "Alpine", "a b", "a:", ""):
        with pytest.raises(InvalidSpecError, match="base"):
            await builder.images.ensure(name, ignore)


async def test_a_host_without_the_program_is_told_what_to_install(
    builder: FakeBuilder, tmp_path: Path
) -> None:
    programs = tmp_path / "few"
    programs.mkdir()
    (programs / "unshare").symlink_to(shutil.which("unshare") or "")
    os.environ["PATH"] = str(programs)
    with pytest.raises(HostError, match="apt install mmdebstrap"):
        await builder.images.ensure("base", ignore)
