from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atoll.errors import ImageBuildError
from atoll.images import About, Images, ReadyBase
from atoll.images.owners import read_owners, stacked_owners, write_owners
from atoll.types import Progress

STATUS = b"Package: tide\nStatus: install ok installed\nVersion: 1\nArchitecture: all\n"


def archive_in(directory: Path) -> ReadyBase:
    path = directory / "base.tar.xz"
    with tarfile.open(path, "w:xz") as tar:
        for name in ("dev", "etc", "var", "var/lib", "var/lib/dpkg"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name, content, mode in (
            ("var/lib/dpkg/status", STATUS, 0o644),
            ("etc/tool", b"#!/bin/sh\n", 0o755),
        ):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("etc/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/tool"
        tar.addfile(link)
    about = About(
        fingerprint="f",
        digest="sha256-0",
        machine="x86_64",
        archive_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        size_bytes=1 << 20,
        files=8,
    )
    return ReadyBase(about, path)


@pytest.mark.anyio
async def test_base_is_unpacked_when_a_package_brings_it_ready_made(tmp_path: Path) -> None:
    reports: list[Progress] = []
    images = Images(tmp_path / "images", ready=archive_in(tmp_path))
    image = await images.ensure("base", reports.append)
    (rootfs,) = image.lowers
    assert (rootfs / "etc/tool").stat().st_mode & 0o777 == 0o755
    assert (rootfs / "etc/link").readlink() == Path("/etc/tool")
    assert image.owners() == ()
    assert any(report.step == "unpacking the image" for report in reports)
    wholes: list[Any] = [report.whole for report in reports]
    assert wholes == sorted(wholes) and wholes[0] == 0
    assert {report.heading for report in reports} == {
        "unpacking the image base for the first sandbox of this home: later sandboxes do not wait for it"
    }
    assert await images.ensure("base", reports.append) == image


@pytest.mark.anyio
async def test_the_files_of_an_image_come_once_more_from_the_package_that_has_them(tmp_path: Path) -> None:
    ready = archive_in(tmp_path)
    image = await Images(tmp_path / "images", ready=ready).ensure("base", lambda _: None)
    about = msgspec.structs.replace(ready.about, digest=image.info.digest)
    images = Images(tmp_path / "images", ready=ReadyBase(about, ready.archive))
    async with images.unpacked_again(image.info.digest, lambda _: None) as rootfs:
        assert rootfs is not None and rootfs != image.lowers[0]
        assert (rootfs / "etc/tool").read_bytes() == (image.lowers[0] / "etc/tool").read_bytes()
    async with images.unpacked_again("sha256-another", lambda _: None) as nothing:
        assert nothing is None
    assert list((tmp_path / "images").glob("build-*")) == []


@pytest.mark.anyio
async def test_a_damaged_archive_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    ready = archive_in(tmp_path)
    with ready.archive.open("r+b") as file:
        file.seek(100)
        file.write(b"damage")
    images = Images(tmp_path / "images", ready=ready)
    with pytest.raises(ImageBuildError, match="damaged") as refused:
        await images.ensure("base", lambda _: None)
    assert "pip install" in str(refused.value.hint)
    assert images.get("base") is None
    assert list((tmp_path / "images").glob("build-*")) == []


@pytest.mark.anyio
async def test_an_archive_of_a_newer_package_replaces_the_image(tmp_path: Path) -> None:
    ready = archive_in(tmp_path)
    old = await Images(tmp_path / "images", ready=ready).ensure("base", lambda _: None)
    about = msgspec.structs.replace(ready.about, fingerprint="g")
    new = await Images(tmp_path / "images", ready=ReadyBase(about, ready.archive)).ensure(
        "base", lambda _: None
    )
    assert new.info.digest != old.info.digest


def test_owners_are_kept_beside_the_files_but_for_names_that_are_no_text(tmp_path: Path) -> None:
    write_owners(tmp_path, [("home/user", 1000, 1000), ("bad\udcff", 1, 1)])
    assert read_owners(tmp_path) == (("home/user", 1000, 1000),)


def test_a_later_layer_decides_whose_a_file_is() -> None:
    owners = {"srv": (33, 33), "home/me": (1000, 1000)}
    stacked_owners(owners, {"srv": (0, 0), "var/mail": (0, 8)})
    assert owners == {"home/me": (1000, 1000), "var/mail": (0, 8)}
