"""Where a build takes files from: a directory of this host, or archives that the caller provided."""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import os
import posixpath
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from atoll.errors import InvalidSpecError
from atoll.sdk._bytes import CHUNK_BYTES
from atoll.sdk._pack import Entry, packed_entries, walk

IGNORE_FILE = ".dockerignore"
_GZIP = b"\x1f\x8b"
_ANY_DEPTH = "**"
LONGEST_PATH = 4096
_DEEPEST = 64


def pattern_of(source: str) -> tuple[str, ...]:
    """Return the parts of a source's path; none means the context itself.

    A path that leads out ends at the top.

    Raises:
        InvalidSpecError: The source is too long, or too deep.
    """
    if len(source) <= LONGEST_PATH:
        parts = tuple(part for part in posixpath.normpath(f"/{source}").split("/") if part)
        if len(parts) <= _DEEPEST:
            return parts
    raise InvalidSpecError(
        f"the source {source[:80]!r}… is too long", hint=f"give a path of at most {_DEEPEST} levels"
    )


def is_pattern(source: str) -> bool:
    """Tell whether the source may match several files."""
    return any(char in source for char in "*?[")


def matched(parts: Sequence[str], pattern: Sequence[str]) -> int | None:
    """Return how many of a path's first parts a pattern matches, or None if it does not match.

    A match includes everything below it.
    """
    # Match step by step, without backtracking: clients of a server choose the patterns and paths.
    reached: Sequence[int] = [0]
    for piece in pattern:
        if piece == _ANY_DEPTH:
            reached = range(reached[0], len(parts) + 1)
        else:
            reached = [at + 1 for at in reached if at < len(parts) and fnmatch.fnmatchcase(parts[at], piece)]
        if not reached:
            return None
    return reached[0]


class Context:
    """Finds and packs the files that a build may copy.

    Args:
        root: A directory of this host. None means no directory.
        archives: Tars, gzipped or not, by name.
        ignore: Patterns of what is left out of the directory. None means those of its ``.dockerignore``.
    """

    def __init__(
        self,
        root: Path | None,
        archives: Mapping[str, Path] | None = None,
        ignore: Sequence[str] | None = None,
    ) -> None:
        self._root = root
        self._ignore = ignore
        self._archives = dict(archives or {})

    def digest(self, sources: Sequence[str], archive: str | None) -> str:
        """Return a digest that changes with the files that match the sources.

        An archive's name stands for its content.

        Raises:
            InvalidSpecError: A source matches no file, or there is no context.
        """
        if archive is not None:
            return archive
        total = hashlib.sha256()
        for source in sources:
            for path, name, status in self._files(source):
                is_file, is_link = stat.S_ISREG(status.st_mode), stat.S_ISLNK(status.st_mode)
                total.update(f"{name}\0{status.st_mode:o}\0{status.st_size if is_file else 0}\0".encode())
                if is_link:
                    total.update(os.fsencode(os.readlink(path)))
                elif is_file:
                    with open(path, "rb") as file:
                        total.update(hashlib.file_digest(file, "sha256").digest())
        return total.hexdigest()

    def check(self, source: str) -> None:
        """Check that a source matches a file.

        Raises:
            InvalidSpecError: It matches none, or there is no context.
        """
        self._files(source)

    def pieces(self, source: str, archive: str | None) -> Iterator[bytes]:
        """Return a tar with at least the files that match a source, each under its name in the context.

        Raises:
            InvalidSpecError: A source matches no file, or there is no such archive.
        """
        if archive is None:
            return (piece for piece, _ in packed_entries(self._files(source)))
        return _unzipped(self._archive(archive))

    def upload_name(self, sources: Sequence[str], archive: str | None) -> str:
        """Return a SHA-256 in hexadecimal by which a server knows what ``upload`` returns.

        Raises:
            InvalidSpecError: A source matches no file, or there is no such archive.
        """
        if archive is None:
            return self.digest(sources, None)
        with open(self._archive(archive), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def upload(self, sources: Sequence[str], archive: str | None) -> Iterator[bytes]:
        """Return an archive with at least what ``pieces`` returns for each source, gzipped or not.

        Raises:
            InvalidSpecError: A source matches no file, or there is no such archive.
        """
        if archive is not None:
            return _content(self._archive(archive))
        found = {entry[1]: entry for source in sources for entry in self._files(source)}
        return _zipped(piece for piece, _ in packed_entries(found.values()))

    def _archive(self, name: str) -> Path:
        if name not in self._archives or not self._archives[name].is_file():
            raise InvalidSpecError(f"there is no archive {name!r}", hint="upload it first")
        return self._archives[name]

    def _files(self, source: str) -> list[Entry]:
        pattern = pattern_of(source)
        found = [entry for entry in self._entries if matched(entry[1].split("/"), pattern) is not None]
        if not found and pattern:
            raise InvalidSpecError(
                f"{source!r} matches no file of the context {self._root}", hint=self._lacking(pattern)
            )
        return found

    def _lacking(self, pattern: Sequence[str]) -> str:
        """Return what to do about a source that matches no file."""
        if self._root is not None and os.path.lexists(os.path.join(self._root, *pattern)):
            return f"{IGNORE_FILE} leaves it out: remove its pattern there"
        return "a source is a path from that directory: check it"

    @functools.cached_property
    def _entries(self) -> list[Entry]:
        if self._root is None:
            raise InvalidSpecError(
                "the build has no context directory to copy from", hint="give one as context"
            )
        path = self._root / IGNORE_FILE
        lines = self._ignore if self._ignore is not None else ignore_lines(path) or []
        ignored = _ignored(lines)
        entries = (entry for entry in walk(self._root) if not ignored(entry[1]))
        return sorted(entries, key=lambda entry: entry[1].split("/"))


def ignore_lines(path: Path) -> list[str] | None:
    """Return the lines of an ignore file, or None if there is no such file."""
    return path.read_text("utf-8", "surrogateescape").splitlines() if path.is_file() else None


def _ignored(lines: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that tells whether a name is left out of the context."""
    if not lines:
        return lambda _: False
    from e2b_dockerfile_utils import PatternMatcher

    try:
        return PatternMatcher([*lines]).matches
    except ValueError as error:
        raise InvalidSpecError(f"a pattern of files to leave out is wrong: {error}") from None


def _unzipped(path: Path) -> Iterator[bytes]:
    """Iterate over a file's content, unzipped if it is zipped. Only one piece is in memory at a time."""
    with open(path, "rb") as file:
        piece = file.read(CHUNK_BYTES)
        if not piece.startswith(_GZIP):
            while piece:
                yield piece
                piece = file.read(CHUNK_BYTES)
            return
        unzip = zlib.decompressobj(wbits=31)
        while piece:
            try:
                data = unzip.decompress(piece, CHUNK_BYTES)
            except zlib.error as error:
                raise InvalidSpecError(f"the archive is not gzip: {error}") from None
            if data:
                yield data
            piece = unzip.unconsumed_tail or file.read(CHUNK_BYTES)


def _content(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(CHUNK_BYTES):
            yield piece


def _zipped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Iterate over gzip of the pieces, fast rather than small."""
    zip_ = zlib.compressobj(level=1, wbits=31)
    for piece in pieces:
        if data := zip_.compress(piece):
            yield data
    yield zip_.flush()
