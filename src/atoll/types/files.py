"""Files inside a sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from atoll.types.notebook import html_of

FileKind = Literal["file", "directory", "symlink", "other"]
WatchKind = Literal["create", "write", "remove", "rename", "chmod"]


class FileInfo(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """The result of ``stat``, and of ``list`` for each file. A symlink is followed only on request.

    ``modified_at`` is in Unix seconds.
    """

    name: str
    path: str
    kind: FileKind
    size_bytes: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    mode: Annotated[int, Meta(ge=0, le=0o7777)]
    owner: str
    group: str
    modified_at: Annotated[float, Meta(ge=-1e13, le=1e13)]
    target: str | None = None

    def _repr_html_(self) -> str:
        return html_of(self)


class WatchEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A change to ``path``, which is relative to the watched directory."""

    kind: WatchKind
    path: str


class SearchMatch(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """A line in which ``search`` found its pattern.

    ``line`` and ``column`` count from 1, columns in characters. ``text`` is the line. If the line has over
    1,000 bytes, it is the part around the match, and ``cut`` is set.
    """

    path: Annotated[str, Meta(max_length=8192)]
    line: Annotated[int, Meta(ge=1, le=1 << 53)]
    column: Annotated[int, Meta(ge=1, le=1 << 53)]
    text: Annotated[str, Meta(max_length=4096)]
    cut: bool = False


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of ``search``, by path and line. Iterating over it gives the matches.

    ``truncated`` means that there are more matches than asked for; any of them may be missing.
    ``unreadable_files`` are those that the user may not read.
    """

    matches: list[SearchMatch]
    files_searched: int = 0
    unreadable_files: int = 0
    truncated: bool = False

    def __iter__(self) -> Iterator[SearchMatch]:
        return iter(self.matches)

    def __len__(self) -> int:
        return len(self.matches)

    def __repr__(self) -> str:
        more = " and more" if self.truncated else ""
        return f"<SearchResult: {len(self.matches)} matches{more} in {self.files_searched} files>"

    def __str__(self) -> str:
        """``PATH:LINE:TEXT`` for each match, as grep prints it."""
        return "\n".join(f"{match.path}:{match.line}:{match.text}" for match in self.matches)


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """A file that differs between two disks; None for a disk without it.

    ``changed`` means another kind, content, mode or owner; times do not count.
    """

    path: str
    change: Literal["added", "removed", "changed"]
    kind_before: FileKind | None
    kind_after: FileKind | None
    bytes_before: int | None
    bytes_after: int | None


class FilesDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between the files of two disks, by path. Iterating over it gives the changes.

    ``truncated`` means that there may be more.
    """

    changes: list[FileChange]
    truncated: bool = False

    def __iter__(self) -> Iterator[FileChange]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)
