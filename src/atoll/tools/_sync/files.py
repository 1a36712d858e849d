# Made by scripts/unasync.py from tools/_async/files.py: do not edit.
"""Tools that read and write files."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from atoll.errors import FileError
from atoll.sdk import Sandbox
from atoll.tools.arguments import Path
from atoll.tools.results import Picture, ToolResult, image_kind
from atoll.tools.schema import Offer
from atoll.tools.text import MOST_CHARACTERS, MOST_FILE_BYTES, clipped, columns

_MOST_ENTRIES = 1000
_MOST_MATCHES = 300
_LINE_CHARACTERS = 300


class FileTools:
    """Reads and writes files.

    Args:
        sandbox: Where.
    """

    OFFERS: ClassVar[tuple[Offer, ...]] = (
        Offer("read_file", "Read a file", reads=True),
        Offer("write_file", "Write a file"),
        Offer("edit_file", "Edit a file"),
        Offer("search_files", "Search in files", reads=True),
        Offer("find_files", "Find files by name", reads=True),
        Offer("list_files", "List a directory", reads=True),
    )

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def read_file(
        self,
        path: Path,
        first_line: Annotated[int, Meta(description="The first line to return, from 1.", ge=1)] = 1,
        lines: Annotated[int, Meta(description="How many lines at most.", ge=1, le=10_000)] = 1000,
    ) -> ToolResult:
        """Read a text file, or look at a picture (PNG, JPEG, GIF, WebP). Long files are read in parts."""
        content = self._sandbox.files.read_bytes(path, max_bytes=MOST_FILE_BYTES)
        kind = image_kind(content)
        if kind is not None:
            return ToolResult("", (Picture(content, kind),))
        if b"\0" in content[:8000]:
            raise FileError(
                f"{path} is no text: it has {len(content):,} bytes",
                hint="look at it with a program: file, xxd",
            )
        text = content.decode("utf-8", "replace")
        every = text.splitlines(keepends=True)
        wanted = "".join(every[first_line - 1 : first_line - 1 + lines])
        if len(wanted) < len(text):
            last = min(len(every), first_line - 1 + lines)
            wanted += f"\n[lines {first_line} to {last} of {len(every)}]"
        return ToolResult(clipped(wanted))

    def write_file(
        self,
        path: Path,
        content: Annotated[str, Meta(description="The whole new content.")],
    ) -> str:
        """Write a text file, replacing what it held. Missing directories are made."""
        info = self._sandbox.files.write(path, content)
        return f"wrote {info.size_bytes:,} bytes to {info.path}"

    def edit_file(
        self,
        path: Path,
        old: Annotated[str, Meta(description="Text that is in the file exactly once.", min_length=1)],
        new: Annotated[str, Meta(description="The text for its place; empty removes it.")],
    ) -> str:
        """Replace a text in a file by another. The text must be there exactly once: give enough around it."""
        info = self._sandbox.files.edit(path, old, new)
        return f"edited {info.path}"

    def search_files(
        self,
        pattern: Annotated[str, Meta(description="A regular expression (RE2), within a line.", min_length=1)],
        path: Path = ".",
        glob: Annotated[
            list[str], Meta(description="Only such files: *.py, src/**; with ! before it: not such.")
        ] = [],  # noqa: B006  # the schema shows the default, and nobody changes it
        ignore_case: Annotated[bool, Meta(description="Take both cases as the same.")] = False,
    ) -> str:
        """Search the text of files below a directory. Returns PATH:LINE:TEXT for each match."""
        found = self._sandbox.files.search(
            pattern, path, glob=glob or None, ignore_case=ignore_case, max_matches=_MOST_MATCHES
        )
        lines = [
            f"{match.path}:{match.line}:{clipped(match.text, _LINE_CHARACTERS)}" for match in found.matches
        ]
        more = [f"[more than {_MOST_MATCHES} matches: narrow the search]"] if found.truncated else []
        return clipped("\n".join(lines + more)) or "no match"

    def find_files(
        self,
        pattern: Annotated[
            str,
            Meta(
                description="Such as src/**/*.{ts,tsx}; *.py finds only files directly there.", min_length=1
            ),
        ],
        path: Path = ".",
        hidden: Annotated[bool, Meta(description="Also names that begin with a dot.")] = False,
    ) -> str:
        """Find files and directories by their path below a directory. Returns a path on each line."""
        rows = self._sandbox.files.glob(pattern, path, hidden=hidden)
        lines = [row.path for row in rows[:_MOST_ENTRIES]]
        return clipped("\n".join([*lines, *_left_out(len(rows))])) or "no match"

    def list_files(
        self,
        path: Path = ".",
        depth: Annotated[int, Meta(description="How many levels of directories.", ge=1, le=10)] = 1,
    ) -> str:
        """List a directory: mode, owner, size, and path; a symlink with its target."""
        rows = self._sandbox.files.list(path, depth=depth)
        shown = columns(
            [
                (
                    f"{row.mode:04o}",
                    row.owner,
                    "dir" if row.kind == "directory" else f"{row.size_bytes:,}",
                    f"{row.path} -> {row.target}" if row.target else row.path,
                )
                for row in rows[:_MOST_ENTRIES]
            ]
        )
        return clipped("\n".join([shown, *_left_out(len(rows))]), 2 * MOST_CHARACTERS) or "empty"


def _left_out(count: int) -> list[str]:
    return [f"[{count - _MOST_ENTRIES:,} more]"] if count > _MOST_ENTRIES else []
