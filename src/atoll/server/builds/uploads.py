"""Stores files that clients upload for builds of templates, for a day. Never unpacks them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

from starlette.requests import ClientDisconnect, Request

from atoll.server.e2b.answers import Refusal
from atoll.server.tokens import Tokens, same

_HASH = re.compile(r"[0-9a-f]{64}")
_ONE_BYTES = 2 << 30
_ALL_BYTES = 16 << 30
_KEEP_S = 24 * 3600.0
_URL_S = 3600
_AT_ONCE = 16
_NEW = ".new-"
_MARK_CHARS = 32


class Uploads:
    """Stores the uploads of all teams, each known by its team and a hash from the client.

    Args:
        directory: The directory with the uploads.
        tokens: Signs the upload addresses.
        clock: Returns Unix seconds.
        most_bytes: The size limits of one upload and of all together. Beyond the latter, the oldest uploads
            of the team with the most bytes go first.
    """

    def __init__(
        self,
        directory: Path,
        tokens: Tokens,
        clock: Callable[[], float] = time.time,
        most_bytes: tuple[int, int] = (_ONE_BYTES, _ALL_BYTES),
    ) -> None:
        self._directory = directory
        self._tokens = tokens
        self._clock = clock
        self._one_bytes, self._all_bytes = most_bytes
        self._going: Counter[str] = Counter()
        self._coming_bytes = 0

    def path(self, team: str, digest: str) -> Path:
        """Return the path of an upload, whether it exists or not.

        Raises:
            Refusal: The digest is not a hash.
        """
        if not _HASH.fullmatch(digest):
            raise Refusal(400, "Invalid files hash")
        # no text from a client may become part of a path
        return self._directory / f"{_mark(team)}{hashlib.sha256(digest.encode()).hexdigest()}"

    def has(self, team: str, digest: str) -> bool:
        """Tell whether an upload exists, and keep it for another day."""
        path = self.path(team, digest)
        with contextlib.suppress(FileNotFoundError):
            os.utime(path, (self._clock(), self._clock()))
            return True
        return False

    def query(self, team: str, digest: str) -> str:
        """Return the query of an upload address. For an hour, its holder may send that one file."""
        self.path(team, digest)
        until = str(int(self._clock()) + _URL_S)
        values = {"team": team, "until": until, "signature": self._tokens.upload(team, digest, until)}
        return urlencode(values)

    async def take(self, digest: str, asked: dict[str, str], pieces: AsyncIterator[bytes]) -> None:
        """Store a client's upload to such an address.

        Raises:
            Refusal: The signature is invalid or expired (403), or ``store`` refuses.
        """
        team, until = asked.get("team", ""), asked.get("until", "")
        wanted = self._tokens.upload(team, digest, until)
        if not same(asked.get("signature", ""), wanted) or not until.isdigit() or int(until) < self._clock():
            raise Refusal(403, "this URL is not signed, or its signature has expired")
        await self.store(team, digest, pieces)

    async def store(self, team: str, digest: str, pieces: AsyncIterator[bytes]) -> None:
        """Store an upload of a team's client.

        Raises:
            Refusal: The digest is not a hash (400), the upload is too long (413), or too many arrive at once
                (503).
        """
        path = self.path(team, digest)
        if self._going[team] >= _AT_ONCE:
            raise Refusal(503, "too many uploads run at a time", headers={"Retry-After": "1"})
        self._going[team] += 1
        try:
            await self._write(path, pieces)
        finally:
            self._going[team] -= 1
            self._going += Counter()  # drops teams without uploads
        await asyncio.to_thread(self.sweep)

    async def _write(self, path: Path, pieces: AsyncIterator[bytes]) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = path.with_name(f"{path.name[:_MARK_CHARS]}{_NEW}{os.urandom(8).hex()}")
        size = 0
        try:
            # Threads write into it; only its name is made here.
            with open(aside, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:  # noqa: ASYNC230
                async for piece in pieces:
                    size += len(piece)
                    self._coming_bytes += len(piece)
                    self._check(size)
                    await asyncio.to_thread(file.write, piece)
            os.utime(aside, (self._clock(), self._clock()))
            aside.rename(path)
        finally:
            self._coming_bytes -= size
            aside.unlink(missing_ok=True)

    def _check(self, size: int) -> None:
        if size > self._one_bytes:
            raise Refusal(413, f"an upload has at most {self._one_bytes} bytes")
        if self._coming_bytes > self._all_bytes:
            raise Refusal(503, "too many uploads run at a time", headers={"Retry-After": "10"})

    def sweep(self) -> None:
        """Remove uploads older than a day, abandoned ones, and the oldest ones beyond the size limit."""
        oldest_s = self._clock() - _KEEP_S
        kept: list[tuple[float, int, Path]] = []
        for found in sorted(self._entries()):
            if found[0] < oldest_s:
                found[2].unlink(missing_ok=True)
            else:
                kept.append(found)
        sizes: Counter[str] = Counter()
        for _, size, entry in kept:
            sizes[_owner(entry)] += size
        # a team's uploads never displace those of a team that has less
        while sizes.total() > self._all_bytes:
            most = max(sizes, key=lambda owner: sizes[owner])
            oldest = next(found for found in kept if _owner(found[2]) == most)
            kept.remove(oldest)
            oldest[2].unlink(missing_ok=True)
            sizes[most] -= oldest[1]

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """Iterate over the uploads: last use, size and path."""
        for entry in self._directory.iterdir() if self._directory.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):  # another sweep was faster
                status = entry.stat()
                yield status.st_mtime, status.st_size, entry


async def pieces_of(request: Request) -> AsyncIterator[bytes]:
    """Iterate over the body of a request.

    Raises:
        Refusal: It ends early (400).
    """
    try:
        async for piece in request.stream():
            yield piece
    except ClientDisconnect:
        raise Refusal(400, "the body ended early") from None


def _mark(team: str) -> str:
    """Return the common prefix of a team's file names."""
    return hashlib.sha256(team.encode()).hexdigest()[:_MARK_CHARS]


def _owner(entry: Path) -> str:
    return entry.name[:_MARK_CHARS]
