"""Runs the program that talks to registries and unpacks layers."""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from atoll.errors import (
    AtollError,
    ImageNotFoundError,
    ImagePullError,
    InvalidSpecError,
    NoSpaceError,
    UnsupportedError,
)
from atoll.host import ProgramResult, RunProgramError, puller_path, run_program
from atoll.types import ImageAccess
from atoll.types.internal import from_json


class TooBigError(ImagePullError):
    """An image is larger than allowed."""


_T = TypeVar("_T")
_RESOLVE_S = 600.0
_NOBODY = 65534
_PASSED_ON = {
    "HOME",
    "PATH",
    "DOCKER_CONFIG",
    "REGISTRY_AUTH_FILE",
    "XDG_RUNTIME_DIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
}
_TROUBLE: dict[str, tuple[type[AtollError], str | None]] = {
    "invalid": (ImagePullError, "the image is damaged or malicious; use another one"),
    "not_found": (ImageNotFoundError, "check the name and the tag at its registry"),
    "denied": (
        ImagePullError,
        "check its name; a private image needs `docker login` on this host first",
    ),
    "credentials": (ImagePullError, "fix the Docker configuration of this host (`docker login` writes it)"),
    "inside": (ImagePullError, "use an image from a public registry"),
    "insecure": (
        ImagePullError,
        "if you trust the network to it, add it to ATOLL_INSECURE_REGISTRIES",
    ),
    "unsupported": (UnsupportedError, "use an image or a tag for this machine's architecture"),
    "digest": (ImagePullError, "the registry or a mirror sent wrong content: try again, or use another one"),
    "too_big": (TooBigError, "to allow it, set ATOLL_IMAGE_GIB to a higher number, then run `atoll stop`"),
    "too_many": (ImagePullError, "use an image with fewer files"),
    "ids": (
        UnsupportedError,
        "give this user a larger range of subordinate ids (see `atoll doctor`), or use atoll as root",
    ),
    "no_space": (NoSpaceError, "free some space under the home"),
    "failed": (ImagePullError, "try again: what was downloaded is kept"),
}
# The same pull may succeed later.
_PASSING = {"failed", "digest"}


class Blob(msgspec.Struct, frozen=True):
    """A layer as its registry stores it."""

    digest: str
    size: int


class RunConfig(msgspec.Struct, frozen=True, rename="pascal"):
    """An image's configuration of its program. Registries send null for unset values."""

    user: str | None = None
    env: list[str] | None = None
    entrypoint: list[str] | None = None
    cmd: list[str] | None = None
    working_dir: str | None = None


class _Rootfs(msgspec.Struct, frozen=True):
    diff_ids: list[str] | None = None


class Config(msgspec.Struct, frozen=True):
    """An image's configuration."""

    architecture: str = ""
    os: str = ""
    config: RunConfig | None = None
    rootfs: _Rootfs = _Rootfs()


class Resolved(msgspec.Struct, frozen=True):
    """An image for this machine, as its registry describes it."""

    digest: str
    config: Config
    layers: list[Blob]


class Unpacked(msgspec.Struct, frozen=True):
    """The result of unpacking a layer.

    ``skipped`` counts devices. ``owners`` are the owners that could not be set.
    """

    bytes: int
    entries: int
    skipped: int
    owners: dict[str, tuple[int, int]] = {}


class _Seamed(msgspec.Struct, frozen=True):
    directories: int


class PullSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How images are pulled.

    Args:
        mirrors: Hosts to ask first, by the registry's host, each with a path if it needs one.
        insecure: Hosts, with ports, for which plain http is allowed.
        private: Networks whose registries are never asked for an image that a stranger named.
        most_bytes: The largest size of an image, unpacked.
        most_entries: The largest number of files in an image.
    """

    mirrors: Mapping[str, Sequence[str]] = {}
    insecure: Sequence[str] = ()
    private: Sequence[str] = ()
    most_bytes: int = 64 << 30
    most_entries: int = 4_000_000


class _Fault(msgspec.Struct, frozen=True):
    code: str
    message: str


class _Failed(msgspec.Struct, frozen=True):
    error: _Fault


class _Done(msgspec.Struct, frozen=True):
    done: int


class Puller:
    """Pulls images. It must run as uid 0 of the host, or of a user namespace.

    Args:
        settings: How images are pulled.
    """

    def __init__(self, settings: PullSettings) -> None:
        self._settings = settings

    async def resolve(self, name: str, access: ImageAccess) -> Resolved:
        """Ask the registry for the description of an image.

        Raises:
            ImageNotFoundError: The registry has none with that name.
            UnsupportedError: It has none for this machine.
            ImagePullError: The registry cannot be reached, or its answer is invalid.
        """
        answer = await _run("resolve", name, self._place(name, access), timeout_s=_RESOLVE_S)
        return _read(answer, Resolved, name)

    async def fetch(
        self,
        name: str,
        access: ImageAccess,
        blobs: Sequence[Blob],
        into: Path,
        came: Callable[[int], None],
    ) -> None:
        """Download layers into a directory, each under its digest. An interrupted download can be continued.

        Args:
            came: Called with the number of bytes downloaded so far.

        Raises:
            ImagePullError: The download failed.
            NoSpaceError: The disk is full.
        """
        place = self._place(name, access)
        into.mkdir(mode=0o700, exist_ok=True, parents=True)  # noqa: ASYNC240  # one directory
        os.chown(into, place["uid"], place["gid"])
        request = {**place, "blobs": msgspec.to_builtins(blobs)}
        await _run("fetch", name, request, timeout_s=None, came=came, cwd=into)

    async def unpack(self, name: str, blob: Path, directory: Path, wanted: Mapping[str, Any]) -> Unpacked:
        """Unpack a downloaded layer into a directory.

        The directory must be empty or, for a flat image, have the files of the layers below. Use the files
        only after this returns. An invalid layer is removed, so that no other pull finds it.

        Args:
            wanted: Digests and bounds, in the program's format.

        Raises:
            ImagePullError: It does not match its digest, or is invalid.
            UnsupportedError: It has files of users that do not exist here.
            NoSpaceError: The disk is full.
        """
        with _opened(blob, os.O_NONBLOCK) as blob_fd, _opened(directory, os.O_DIRECTORY) as directory_fd:
            request = {**wanted, "blob_fd": blob_fd, "directory_fd": directory_fd}
            fds = (blob_fd, directory_fd)
            answer = await _run("unpack", name, request, timeout_s=None, pass_fds=fds, judged=blob)
        return _read(answer, Unpacked, name)

    async def seam(
        self, name: str, where: Path, layers: Sequence[str], directory: Path, overlay_prefix: str
    ) -> bool:
        """Make the seam of these layers in an empty directory, and return whether they need it.

        Layers need a seam if one has a directory only as a parent of its files: the layers below know its
        owner.

        Args:
            where: The place of the layers.
            layers: Their names, the top layer first.

        Raises:
            ImagePullError: The seam cannot be made.
            NoSpaceError: The disk is full.
        """
        with _opened(where, os.O_DIRECTORY) as layers_fd, _opened(directory, os.O_DIRECTORY) as directory_fd:
            request = {
                "layers_fd": layers_fd,
                "layers": layers,
                "directory_fd": directory_fd,
                "overlay_prefix": overlay_prefix,
            }
            fds = (layers_fd, directory_fd)
            answer = await _run("seam", name, request, timeout_s=None, pass_fds=fds)
        return _read(answer, _Seamed, name).directories > 0

    def _place(self, name: str, access: ImageAccess) -> dict[str, Any]:
        return {
            "login": msgspec.to_builtins(access.login),
            "anonymous": access.team is not None and not access.trusted,
            "reference": name,
            "mirrors": {host: list(mirrors) for host, mirrors in self._settings.mirrors.items()},
            "insecure": list(self._settings.insecure),
            "refused": list(self._settings.private) if access.public else [],
            "tenant": access.team is not None,
            "uid": _stranger(Path("/proc/self/uid_map").read_text()),
            "gid": _stranger(Path("/proc/self/gid_map").read_text()),
        }


@contextlib.contextmanager
def _opened(path: Path, how: int) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | how)
    try:
        yield fd
    finally:
        os.close(fd)


def _stranger(id_map: str) -> int:
    """Return the uid to use while talking to registries: nobody's, or the last one that exists."""
    rows = [[int(field) for field in line.split()] for line in id_map.splitlines()]
    last = max(first + count - 1 for first, _, count in rows)
    return min(_NOBODY, last)


async def _run(
    step: str,
    name: str,
    request: Mapping[str, Any],
    *,
    timeout_s: float | None,
    came: Callable[[int], None] | None = None,
    cwd: Path = Path("/"),
    pass_fds: Sequence[int] = (),
    judged: Path | None = None,
) -> bytes:
    """Run a step of the program. ``judged`` is removed if the program says that its input is invalid."""
    try:
        result = await run_program(
            [str(puller_path()), step],
            stdin=msgspec.json.encode(request),
            timeout_s=timeout_s,
            env=_environment(),
            cwd=str(cwd),
            pass_fds=pass_fds,
            on_stderr=_Counts(came).feed if came else None,
        )
    except RunProgramError as error:
        raise ImagePullError(
            f"the image {name} could not be pulled: {error}", hint="try again", retryable=True
        ) from error
    if result.exit_code == 0:
        return result.stdout
    try:
        fault = from_json(result.stdout, _Failed).error
    except ValueError:
        raise ImagePullError(
            f"the image {name} could not be pulled: {_how_it_ended(result)}",
            hint="try again: what was downloaded is kept",
            retryable=True,
        ) from None
    kind, hint = _TROUBLE.get(fault.code, _TROUBLE["failed"])
    said = _without_password(fault.message, request)
    if step == "resolve" and fault.code == "invalid":
        kind, hint = InvalidSpecError, "`atoll docs images` says what is taken"
    if judged is not None and issubclass(kind, ImagePullError):
        judged.unlink(missing_ok=True)  # noqa: ASYNC240  # one name
    retryable = True if fault.code in _PASSING else None
    raise kind(f"the image {name} could not be pulled: {said[:2000]}", hint=hint, retryable=retryable)


def _how_it_ended(result: ProgramResult) -> str:
    """Describe the end of a program that was killed or failed without a message."""
    lines = result.stderr.decode(errors="replace").splitlines()
    said = "\n".join(line for line in lines if not line.startswith('{"done":'))
    how = f"by signal {-result.exit_code}" if result.exit_code < 0 else f"with {result.exit_code}"
    return f"atoll-puller ended {how}" + (f": {said[-500:]}" if said else "")


def _without_password(text: str, request: Mapping[str, Any]) -> str:
    """Return text from a registry without the password that it was sent."""
    login = request.get("login")
    if not login or not login["password"]:
        return text
    both = f"{login['username']}:{login['password']}".encode()
    for secret in (login["password"], base64.b64encode(both).decode()):
        text = text.replace(secret, "…")
    return text


class _Counts:
    """Reads the newest count from pieces of lines."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines[-1:]:
            try:
                self._tell(from_json(line, _Done).done)
            except ValueError:
                continue


def _read(answer: bytes, kind: type[_T], name: str) -> _T:
    try:
        return from_json(answer, kind)
    except ValueError as error:
        raise ImagePullError(
            f"the image {name} has a configuration that cannot be read: {error}", hint="use another image"
        ) from None


def _environment() -> dict[str, str]:
    return {
        key: value for key, value in os.environ.items() if key in _PASSED_ON or key.lower().endswith("_proxy")
    }
