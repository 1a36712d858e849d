"""Runs mmdebstrap."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from atoll.errors import HostError, ImageBuildError
from atoll.host import RunProgramError, run_program
from atoll.images.progress import BuildProgress
from atoll.images.recipe import BASE, Recipe
from atoll.types import Progress

_LONGEST_BUILD_S = 1800.0
_TAIL_LINES = 20
_PASSED_ON = {"HOME", "PATH", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"}
_HINTS = (
    ("No space left on device", "free some space under the home and on /tmp, then try again"),
    ("Could not resolve", "this host cannot resolve its package mirror: check its network and DNS"),
    ("Failed to fetch", "this host cannot reach its package mirror: check `apt-get update` on it"),
    ("Unable to fetch", "this host cannot reach its package mirror: check `apt-get update` on it"),
    ("NO_PUBKEY", "install the keyring of the package archive: apt-get install debian-archive-keyring"),
    ("Operation not permitted", "`atoll doctor` says whether this user has subordinate uids and gids"),
)


class _Lines:
    """Cuts a stream into lines, reports progress, and keeps the last lines."""

    def __init__(self, progress: Callable[[Progress], None]) -> None:
        self._progress = progress
        self._parser = BuildProgress()
        self._rest = b""
        self.tail: list[str] = []

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for raw in lines:
            line = raw.rsplit(b"\r", 1)[-1].decode(errors="replace")
            self.tail = [*self.tail, line][-_TAIL_LINES:]
            if report := self._parser.feed(line):
                self._progress(report)


async def build(
    recipe: Recipe, rootfs: Path, sources_directory: Path, progress: Callable[[Progress], None]
) -> None:
    """Build an image into ``rootfs``, which must not exist yet. Cancelling ends the build; its files stay.

    Must run as uid 0 of the host, or of a user namespace with a range of uids and gids.

    Raises:
        HostError: mmdebstrap is not installed.
        ImageBuildError: It failed; the message ends with its last 20 lines.
    """
    for name, text in recipe.files().items():
        (sources_directory / name).write_text(text)
    lines = _Lines(progress)
    try:
        result = await run_program(
            ["sh", "-c", 'exec "$@" >&2', "sh", *recipe.argv(rootfs, sources_directory)],
            timeout_s=_LONGEST_BUILD_S,
            env=_environment(recipe),
            on_stderr=lines.feed,
        )
    except RunProgramError as error:
        raise ImageBuildError(f"the image {BASE} could not be built: {error}") from error
    if result.exit_code == 127:
        raise HostError("mmdebstrap is not installed", hint="apt-get install mmdebstrap uidmap")
    if result.exit_code:
        raise _failure(result.exit_code, "\n".join(lines.tail))


async def apt_config() -> str:
    """Return the output of ``apt-config dump`` on this host; empty where there is no apt."""
    try:
        result = await run_program(["apt-config", "dump"])
    except RunProgramError:
        return ""
    return result.stdout.decode(errors="replace")


def _failure(exit_code: int, tail: str) -> ImageBuildError:
    hint = next((hint for word, hint in _HINTS if word in tail), "read the lines above, then try again")
    return ImageBuildError(f"mmdebstrap ended with {exit_code}; its last lines:\n{tail}\n", hint=hint)


def _environment(recipe: Recipe) -> dict[str, str]:
    kept = {
        key: value for key, value in os.environ.items() if key in _PASSED_ON or key.lower().endswith("_proxy")
    }
    sbin = "/usr/local/sbin:/usr/sbin:/sbin"
    return {
        **kept,
        "PATH": f"{kept.get('PATH', '/usr/local/bin:/usr/bin:/bin')}:{sbin}",
        "LC_ALL": "C.UTF-8",
        "ATOLL_GUEST_APT_OPTIONS": "\n".join(f"{option};" for option in recipe.guest_apt_options),
    }
