"""Static programs for images that tests make, from the distribution's own packages, kept in the tests' cache."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.homes import CACHE

_PACKAGES = ("busybox-static", "musl")
_LONG_S = 300


def busybox() -> bytes:
    """A static program that is a shell and all the usual commands."""
    return (_programs() / "bin/busybox").read_bytes()


def musl() -> bytes:
    """The C library musl, which is a program that tells its version, too."""
    (loader,) = _programs().glob("**/libc.so")
    return loader.read_bytes()


@functools.cache
def _programs() -> Path:
    kept = CACHE / "programs"
    if not kept.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="programs-", dir=CACHE) as work:
            _download(Path(work))
            for package in Path(work).glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", package, Path(work) / "out"], check=True, timeout=_LONG_S)
            shutil.rmtree(kept, ignore_errors=True)
            (Path(work) / "out").rename(kept)
    return kept


def _download(work: Path) -> None:
    """Have apt bring the packages, by lists of its own where the host's are missing; that takes no rights."""
    own = [f"-oDir::State::Lists={work}/lists", f"-oDir::Cache={work}/cache", "-oAPT::Sandbox::User="]
    for options in ([], own):
        for place in ("lists/partial", "cache/archives/partial"):
            (work / place).mkdir(parents=True, exist_ok=True)
        if options:
            _apt(work, *options, "update")
        if _apt(work, *options, "download", *_PACKAGES).returncode == 0:
            return
    raise AssertionError(f"apt cannot download {_PACKAGES}")


def _apt(work: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["apt-get", "-qq", *arguments], cwd=work, capture_output=True, timeout=_LONG_S)
