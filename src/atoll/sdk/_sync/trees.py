# Made by scripts/unasync.py from sdk/_async/trees.py: do not edit.
"""Copies files and whole directories between the host and a sandbox."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from atoll.errors import FileError, InvalidSpecError
from atoll.guest import file_from, files_request, get_file, get_tree, put_file, put_tree
from atoll.sdk._sync.agent import SILENCE_S, Agent, bytes_of
from atoll.sdk._bytes import CHUNK_BYTES
from atoll.sdk._deadline import Deadline
from atoll.sdk._io_sync import call, in_thread
from atoll.sdk._pack import packed, tree_bytes
from atoll.sdk._telling import Digest, file_line
from atoll.sdk._unpack import Limits, Unpacker, write_sparse
from atoll.types import FileInfo, GuestPath
from atoll.types.internal import path_text

_Progress = Callable[[int, int | None], Any] | None


def upload(
    agent: Agent, local: Path, path: GuestPath, *, on_progress: _Progress, user: str | None
) -> None:
    """Copy a file or a directory's content into the sandbox."""
    status = in_thread(os.stat, local)
    if stat.S_ISDIR(status.st_mode):
        total = in_thread(tree_bytes, local)
        body = _tree_pieces(local, total, on_progress)
        agent.call(put_tree(path, user), body=body, timeout_s=None)
        agent.tell(file_line(path_text(path), total, user, written=True))
        return
    if not stat.S_ISREG(status.st_mode):
        # opening a pipe waits for its other end, and a device may have no end
        raise InvalidSpecError(
            f"{local} is neither a file nor a directory",
            hint="give a file or a directory, or use `write` for an open file",
        )
    request = put_file(path, user, mode=stat.S_IMODE(status.st_mode), body=None)
    # files that the kernel makes up, as below /proc, report no size
    size = status.st_size or None
    with Digest() as digest:
        body = _file_pieces(local, size, on_progress, digest)
        agent.call(request, body=body, length=size, timeout_s=None)
        digest.complete = True
    agent.tell(file_line(path_text(path), digest.size, user, written=True), digest.hashed)


def _tree_pieces(local: Path, total: int, on_progress: _Progress) -> Iterator[bytes]:
    pieces = packed(local)
    told = -1
    while True:
        piece, done = in_thread(next, pieces, (b"", 0))
        if not piece:
            return
        if on_progress is not None and done != told:
            told = done
            call(on_progress, done, total)
        yield piece


def _file_pieces(
    local: Path, size: int | None, on_progress: _Progress, digest: Digest
) -> Iterator[bytes]:
    done = 0
    file = in_thread(local.open, "rb")
    try:
        while size is None or done < size:
            piece = in_thread(file.read, CHUNK_BYTES if size is None else min(CHUNK_BYTES, size - done))
            if not piece:
                if size is None:
                    return
                raise FileError(f"{local} became shorter while atoll read it", hint="try again")
            done += len(piece)
            digest.add(piece)
            yield piece
            if on_progress is not None:
                call(on_progress, done, size)
    finally:
        file.close()


def download(
    agent: Agent,
    path: GuestPath,
    local: Path,
    limits: Limits,
    *,
    on_progress: _Progress,
    user: str | None,
) -> None:
    """Copy a file or a directory's content out of the sandbox."""
    info = file_from(agent.call(files_request("stat", path, follow=True, user=user), repeatable=True))
    if info.kind == "directory":
        _download_tree(agent, path, local, limits, on_progress, user)
    else:
        digest = _download_file(agent, info, local, limits, on_progress, user)
        agent.tell(file_line(path_text(path), digest.size, user, written=False), digest.hashed)


def _download_tree(
    agent: Agent, path: GuestPath, local: Path, limits: Limits, on_progress: _Progress, user: str | None
) -> None:
    answer = agent.open(get_tree(path, user), Deadline(None, silence_s=SILENCE_S))
    try:
        in_thread(local.mkdir, exist_ok=True)
        unpacker = Unpacker(local, limits)
        try:
            while data := answer.read():
                in_thread(unpacker.feed, data)
                if on_progress is not None:
                    call(on_progress, unpacker.done_bytes, None)
            in_thread(unpacker.finish)
        finally:
            unpacker.close()
            agent.tell(file_line(path_text(path), unpacker.done_bytes, user, written=False))
    finally:
        answer.close()


def _download_file(
    agent: Agent, info: FileInfo, local: Path, limits: Limits, on_progress: _Progress, user: str | None
) -> Digest:
    path = info.path
    answer = agent.open(get_file(path, user), Deadline(None, silence_s=SILENCE_S))
    length = answer.headers.get("content-length", "")
    total = int(length) if length.isascii() and length.isdigit() else None
    aside = local.with_name(f".{local.name[:200]}.{os.urandom(4).hex()}")
    done = 0
    try:
        with Digest() as digest, in_thread(aside.open, "xb", 0) as file:
            for piece in bytes_of(answer):
                done += len(piece)
                digest.add(piece)
                if limits.max_bytes is not None and done > limits.max_bytes:
                    raise FileError(f"{path} has more than max_bytes, {limits.max_bytes}", hint="give more")
                in_thread(write_sparse, file.fileno(), piece)
                if on_progress is not None:
                    call(on_progress, done, total)
            digest.complete = True
            in_thread(file.truncate, done)
            if hasattr(os, "fchmod"):  # before Python 3.13, Windows has none
                os.fchmod(file.fileno(), info.mode & 0o777)
        os.utime(aside, (info.modified_at, info.modified_at))
        in_thread(aside.replace, local)
        return digest
    finally:
        answer.close()
        aside.unlink(missing_ok=True)
