#!/usr/bin/env python3
"""Make the archive of the image base that packaging/base carries.

Usage: base_archive.py [--images DIRECTORY] [--preset N] OUTPUT_DIRECTORY, as root or as a user with subuid ranges, on
Debian: the image is built by mmdebstrap, unless it is in DIRECTORY already. With an archive of that image in the output
already, nothing is done. Preset 0 packs in seconds, 6 in a minute or two and a third smaller.
The same packages and the same SOURCE_DATE_EPOCH (default: of the last commit) give the same bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import msgspec

from atoll.host import Home, end_holder, ensure_holder, join_holder
from atoll.images import About, Image, Images
from atoll.images.ready import ABOUT, ARCHIVE
from atoll.types import Progress

ROOT = Path(__file__).resolve().parent.parent
# Machine code packs better when the targets of its jumps are absolute.
FILTERS = {"x86_64": [{"id": lzma.FILTER_X86}]}

TELL_S = 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "atoll" / "dist"
    parser.add_argument("--images", type=Path, default=cache, help="where built images are kept")
    parser.add_argument("--preset", type=int, default=6, choices=range(10), help="compression preset of xz")
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    images, output = arguments.images.resolve(), arguments.output.resolve()
    for directory in (images, output):
        directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="atoll-dist-") as place:
        home = Home(place)
        holder = ensure_holder(home)
        try:
            child = os.fork()
            if not child:
                join_holder(holder)
                make(images, output, arguments.preset)
                os._exit(0)
            _, status = os.waitpid(child, 0)
        finally:
            end_holder(home)
    return 1 if status else 0


def make(images: Path, output: Path, preset: int) -> None:
    try:
        image = asyncio.run(Images(images).ensure("base", tell))
        if not is_there(image, output):
            write(image, output, preset)
    except BaseException as error:
        print(f"base_archive: {error}", file=sys.stderr)
        os._exit(1)


def tell(report: Progress) -> None:
    if not report.done:
        print(report.step, file=sys.stderr)


def is_there(image: Image, output: Path) -> bool:
    try:
        about = msgspec.json.decode((output / ABOUT).read_bytes(), type=About)
    except (OSError, msgspec.DecodeError):
        return False
    return about.digest == image.info.digest and (output / ARCHIVE).exists()


def write(image: Image, output: Path, preset: int) -> None:
    machine = os.uname().machine
    (output / ABOUT).unlink(missing_ok=True)
    print("packing the image", file=sys.stderr)
    aside = output / f"{ARCHIVE}.part"
    files, began, told = 0, time.monotonic(), 0.0
    with lzma.open(
        aside, "wb", filters=[*FILTERS.get(machine, []), {"id": lzma.FILTER_LZMA2, "preset": preset}]
    ) as packed:
        with tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for path in entries(image.lowers[0]):
                add(tar, image.lowers[0], path)
                files += 1
                passed = time.monotonic() - began
                if passed - told >= TELL_S:
                    told = passed
                    print(f"  packed {files} files, {passed:.0f} s", file=sys.stderr)
    aside.rename(output / ARCHIVE)
    with (output / ARCHIVE).open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    about = About(
        fingerprint=fingerprint_of(image),
        digest=image.info.digest,
        machine=machine,
        archive_sha256=checksum,
        size_bytes=image.info.size_bytes,
        files=files,
    )
    (output / ABOUT).write_bytes(msgspec.json.format(msgspec.json.encode(about)) + b"\n")


def fingerprint_of(image: Image) -> str:
    index = msgspec.json.decode((image.lowers[0].parent.parent / "index.json").read_bytes())
    return str(index["base"]["fingerprint"])


def entries(rootfs: Path) -> list[str]:
    """Paths below the root in order, but for devices and what a running sandbox mounts."""
    found = [os.path.relpath(path, rootfs) for path in rootfs.rglob("*")]
    return sorted(name for name in found if not name.startswith("dev/") and name != ".atoll")


def add(tar: tarfile.TarFile, rootfs: Path, name: str) -> None:
    path = rootfs / name
    if os.listxattr(path, follow_symlinks=False):
        raise SystemExit(f"{path} has extended attributes, which the archive cannot keep")
    info = tar.gettarinfo(str(path), arcname=name)
    info.uname = info.gname = ""
    info.mtime = min(int(info.mtime), EPOCH)
    if info.isreg():
        with path.open("rb") as file:
            tar.addfile(info, file)
    else:
        tar.addfile(info)


def epoch() -> int:
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    said = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    return int(said.stdout or "315532800")


EPOCH = epoch()

if __name__ == "__main__":
    sys.exit(main())
