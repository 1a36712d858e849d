"""Requests to the guest agent, as values: one function per route of agent/spec/atoll.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal
from urllib.parse import quote

import msgspec

from atoll.guest.definitions import Definition
from atoll.types import GuestPath, TerminalSize
from atoll.types.internal import as_json, check_text, path_text

_JSON = (("content-type", "application/json"),)
_TEXT_HINT = "names and arguments are UTF-8; other bytes go through stdin, files, or whole directories"
_BYTES = (("content-type", "application/octet-stream"),)

FileOp = Literal["stat", "list", "mkdir", "move", "copy", "remove", "glob", "chmod", "chown"]


class GuestRequest(msgspec.Struct, frozen=True):
    """A request that has not been sent. ``body`` is None if the caller sends the body itself."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = b""


class Program(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A program to start in the guest: ``argv``, or a shell ``line``.

    ``timeout_ms`` 0 is no timeout. ``stdin`` False gives the program /dev/null. ``pty`` gives it a terminal
    instead of pipes.
    """

    argv: tuple[str, ...] | None = None
    line: str | None = None
    cwd: str | None = None
    env: Mapping[str, str] = {}
    user: str | None = None
    stdin: bool = False
    pty: TerminalSize | None = None
    timeout_ms: int = 0
    tag: str | None = None


class GuestInit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A guest's settings; fields that are None stay unchanged. ``entropy`` is sent as base64.

    ``owners`` are path, uid and gid of the image's files that the host could not give to their owners. When
    ``memory_bytes`` are nearly used, the agent kills the biggest program. ``services`` defines all services;
    the agent starts the new and changed ones.
    """

    generation: int | None = None
    hostname: str | None = None
    machine_id: str | None = None
    env: Mapping[str, str] | None = None
    user: str | None = None
    cwd: str | None = None
    ca_pem: str | None = None
    nameserver: str | None = None
    entropy: bytes | None = None
    owners: tuple[tuple[str, int, int], ...] = ()
    memory_bytes: int | None = None
    services: tuple[Definition, ...] | None = None


def _query(route: str, **values: str | None) -> str:
    for key, value in values.items():
        if value is not None:
            check_text(key, value, hint=_TEXT_HINT)
    parts = [f"{key}={quote(value, safe='')}" for key, value in values.items() if value]
    return f"{route}?{'&'.join(parts)}" if parts else route


def json_request(method: str, target: str, body: object) -> GuestRequest:
    """Send a body as JSON."""
    return GuestRequest(method, target, _JSON, as_json(body, hint=_TEXT_HINT))


def _post(target: str, body: object) -> GuestRequest:
    return json_request("POST", target, body)


def health() -> GuestRequest:
    """Ask whether the agent answers."""
    return GuestRequest("GET", "/health")


def init(values: GuestInit) -> GuestRequest:
    """Tell the guest its identity, environment and clock-independent settings."""
    return _post("/atoll/init", values)


def warm(user: str) -> GuestRequest:
    """Read the login environment of ``user`` now, so that the first shell line need not wait for it."""
    return _post("/atoll/warm", {"user": user})


def flush() -> GuestRequest:
    """Write the guest's caches to its disk."""
    return GuestRequest("POST", "/atoll/flush")


def free_memory() -> GuestRequest:
    """Kill the biggest program, because the host runs short of memory."""
    return GuestRequest("POST", "/atoll/free-memory")


def before_suspend(*, hooks: bool = False) -> GuestRequest:
    """Announce a suspend, and ask when the sandbox is to wake.

    With ``hooks``, the guest's hooks run first.
    """
    return GuestRequest("POST", _query("/atoll/before-suspend", hooks="true" if hooks else None))


def start_process(program: Program, *, patience_ms: int = 0) -> GuestRequest:
    """Start a program; the answer is its stream of frames.

    Its first frame may wait ``patience_ms`` for the frames that follow it.
    """
    return _post(_query("/atoll/processes", patience_ms=str(patience_ms) if patience_ms else None), program)


def list_processes() -> GuestRequest:
    """List the programs that were started through the agent and still run."""
    return GuestRequest("GET", "/atoll/processes")


def process_output(pid: int) -> GuestRequest:
    """Follow a program's output: first the kept output, then new output."""
    return GuestRequest("GET", f"/atoll/processes/{pid}/output")


def write_stdin(pid: int, *, end: bool, body: bytes | None) -> GuestRequest:
    """Write to standard input or the terminal; with ``end`` close it afterwards."""
    return GuestRequest("POST", f"/atoll/processes/{pid}/stdin{'?eof=1' if end else ''}", _BYTES, body)


def signal_process(pid: int, number: int) -> GuestRequest:
    """Send a signal to the process group that ``pid`` leads."""
    return _post(f"/atoll/processes/{pid}/signal", {"signal": number})


def resize_process(pid: int, size: TerminalSize) -> GuestRequest:
    """Set the size of a terminal."""
    return _post(f"/atoll/processes/{pid}/resize", size)


def get_file(path: GuestPath, user: str | None) -> GuestRequest:
    """Read a regular file."""
    return GuestRequest("GET", _query("/atoll/file", path=path_text(path), user=user))


def put_file(
    path: GuestPath, user: str | None, *, mode: int | None, body: bytes | None, whole: bool = False
) -> GuestRequest:
    """Write a file and make its parents. A ``mode`` of None takes the agent's default.

    With ``whole`` readers see all of the old content or all of the new.
    """
    mode_text = None if mode is None else f"{mode & 0o7777:o}"
    replaced = "true" if whole else None
    target = _query("/atoll/file", path=path_text(path), user=user, mode=mode_text, whole=replaced)
    return GuestRequest("PUT", target, _BYTES, body)


def put_files(user: str | None) -> GuestRequest:
    """Write the files of a tar, sent as a stream, whose names are paths; a mode of 0 is none."""
    target = _query("/atoll/files", user=user)
    return GuestRequest("PUT", target, (("content-type", "application/x-tar"),), None)


class Search(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The pattern, place and limits of a search. ``pattern`` is RE2, or with ``literal`` plain text."""

    pattern: str
    path: str
    max_matches: int
    max_bytes: int
    literal: bool = False
    ignore_case: bool = False
    globs: tuple[str, ...] = ()
    hidden: bool = False
    user: str | None = None


def search_files(search: Search) -> GuestRequest:
    """Search files for a pattern; the answer is a stream of frames."""
    return _post("/atoll/search", search)


class _FilesBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    op: FileOp
    path: str
    to: str | None = None
    depth: int | None = None
    parents: bool = False
    follow: bool = False
    pattern: str | None = None
    hidden: bool = False
    mode: int | None = None
    owner: str | None = None
    recursive: bool = False
    user: str | None = None


def glob_files(path: GuestPath, pattern: str, *, hidden: bool, user: str | None) -> GuestRequest:
    """List the entries below a directory whose relative paths match."""
    return _post(
        "/atoll/files",
        _FilesBody(op="glob", path=path_text(path), pattern=pattern, hidden=hidden, user=user),
    )


def change_mode(path: GuestPath, mode: int, *, recursive: bool, user: str | None) -> GuestRequest:
    """Set permission bits."""
    return _post(
        "/atoll/files",
        _FilesBody(op="chmod", path=path_text(path), mode=mode, recursive=recursive, user=user),
    )


def change_owner(path: GuestPath, owner: str, *, recursive: bool, user: str | None) -> GuestRequest:
    """Give a file to ``USER`` or ``USER:GROUP``."""
    return _post(
        "/atoll/files",
        _FilesBody(op="chown", path=path_text(path), owner=owner, recursive=recursive, user=user),
    )


def files_request(
    op: FileOp,
    path: GuestPath,
    *,
    to: GuestPath | None = None,
    depth: int | None = None,
    parents: bool = False,
    follow: bool = False,
    user: str | None = None,
) -> GuestRequest:
    """Do one operation on names: look, list, make, move or remove."""
    return _post(
        "/atoll/files",
        _FilesBody(
            op=op,
            path=path_text(path),
            to=None if to is None else path_text(to),
            depth=depth,
            parents=parents,
            follow=follow,
            user=user,
        ),
    )


def get_tree(path: GuestPath, user: str | None, *, file_as: str | None = None) -> GuestRequest:
    """Read a directory's content as a tar, or with ``file_as`` one file under that name."""
    return GuestRequest(
        "GET", _query("/atoll/tree", **{"path": path_text(path), "user": user, "as": file_as})
    )


def put_tree(
    path: GuestPath,
    user: str | None,
    *,
    owner: str | None = None,
    keeps_owners: bool = False,
    mode: int | None = None,
) -> GuestRequest:
    """Unpack a tar, sent as a stream, into a directory.

    ``owner`` gets all files, or with ``keeps_owners`` those get them whose numbers are in the tar. For both,
    ``user`` must be root.
    """
    mode_text = None if mode is None else f"{mode & 0o7777:o}"
    owners = "true" if keeps_owners else None
    target = _query(
        "/atoll/tree", path=path_text(path), user=user, owner=owner, mode=mode_text, owners=owners
    )
    return GuestRequest("PUT", target, (("content-type", "application/x-tar"),), None)


def watch(path: GuestPath, user: str | None, *, recursive: bool) -> GuestRequest:
    """Follow the changes in a directory."""
    return GuestRequest(
        "GET",
        _query("/atoll/watch", path=path_text(path), recursive="true" if recursive else None, user=user),
    )


def loopback(port: int) -> GuestRequest:
    """Turn the connection into one to a port of the guest's loopback interface."""
    return GuestRequest(
        "POST", f"/atoll/loopback?port={port}", (("connection", "upgrade"), ("upgrade", "tcp"))
    )


def stats() -> GuestRequest:
    """Ask about the activity in the guest."""
    return GuestRequest("GET", "/atoll/stats")
