"""Tools that read and write files."""

from __future__ import annotations

from typing import Annotated

from mcp.server.mcpserver import Image
from pydantic import Field

from atoll.errors import FileError
from atoll.mcp.text import MOST_CHARACTERS, clipped, columns
from atoll.mcp.tools.adding import Tools
from atoll.mcp.tools.arguments import Path, Which
from atoll.mcp.workplace import Workplace

MOST_BYTES = 8 << 20
_IMAGES = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif"}
_MOST_ENTRIES = 1000
_MOST_MATCHES = 300
_LINE_CHARACTERS = 300


def add(tools: Tools, workplace: Workplace) -> None:
    """Add the tools."""
    found = Files(workplace)
    tools.add(found.read_file, title="Read a file", reads=True)
    tools.add(found.write_file, title="Write a file")
    tools.add(found.edit_file, title="Edit a file")
    tools.add(found.search_files, title="Search in files", reads=True)
    tools.add(found.list_files, title="List a directory", reads=True)


class Files:
    """Reads and writes files.

    Args:
        workplace: Has the sandboxes.
    """

    def __init__(self, workplace: Workplace) -> None:
        self._workplace = workplace

    async def read_file(
        self,
        path: Path,
        sandbox: Which = None,
        first_line: Annotated[int, Field(description="The first line to return, from 1.", ge=1)] = 1,
        lines: Annotated[int, Field(description="How many lines at most.", ge=1, le=10_000)] = 1000,
    ) -> str | Image:
        """Read a text file, or look at a picture (PNG, JPEG, GIF, WebP). Long files are read in parts."""
        used = await self._workplace.sandbox(sandbox)
        content = await used.files.read_bytes(path, max_bytes=MOST_BYTES)
        kind = image_kind(content)
        if kind is not None:
            return Image(data=content, format=kind)
        if b"\0" in content[:8000]:
            raise FileError(
                f"{path} is no text: it has {len(content):,} bytes",
                hint="look at it with a program: file, xxd",
            )
        every = content.decode("utf-8", "replace").splitlines(keepends=True)
        wanted = "".join(every[first_line - 1 : first_line - 1 + lines])
        if len(wanted) < len(content.decode("utf-8", "replace")):
            last = min(len(every), first_line - 1 + lines)
            wanted += f"\n[lines {first_line} to {last} of {len(every)}]"
        return clipped(wanted)

    async def write_file(
        self,
        path: Path,
        content: Annotated[str, Field(description="The whole new content.")],
        sandbox: Which = None,
    ) -> str:
        """Write a text file, replacing what it held. Missing directories are made."""
        info = await (await self._workplace.sandbox(sandbox)).files.write(path, content)
        return f"wrote {info.size_bytes:,} bytes to {info.path}"

    async def edit_file(
        self,
        path: Path,
        old: Annotated[str, Field(description="Text that is in the file exactly once.", min_length=1)],
        new: Annotated[str, Field(description="The text for its place; empty removes it.")],
        sandbox: Which = None,
    ) -> str:
        """Replace a text in a file by another. The text must be there exactly once: give enough around it."""
        info = await (await self._workplace.sandbox(sandbox)).files.edit(path, old, new)
        return f"edited {info.path}"

    async def search_files(
        self,
        pattern: Annotated[
            str, Field(description="A regular expression (RE2), within a line.", min_length=1)
        ],
        path: Path = ".",
        sandbox: Which = None,
        glob: Annotated[
            list[str], Field(description="Only such files: *.py, src/**; with ! before it: not such.")
        ] = [],  # noqa: B006  # the schema shows the default, and nobody changes it
        ignore_case: Annotated[bool, Field(description="Take both cases as the same.")] = False,
    ) -> str:
        """Search the text of files below a directory. Returns PATH:LINE:TEXT for each match."""
        used = await self._workplace.sandbox(sandbox)
        found = await used.files.search(
            pattern, path, glob=glob or None, ignore_case=ignore_case, max_matches=_MOST_MATCHES
        )
        lines = [
            f"{match.path}:{match.line}:{clipped(match.text, _LINE_CHARACTERS)}" for match in found.matches
        ]
        more = [f"[more than {_MOST_MATCHES} matches: narrow the search]"] if found.truncated else []
        return clipped("\n".join(lines + more)) or "no match"

    async def list_files(
        self,
        path: Path = ".",
        sandbox: Which = None,
        depth: Annotated[int, Field(description="How many levels of directories.", ge=1, le=10)] = 1,
    ) -> str:
        """List a directory: mode, owner, size, and path; a symlink with its target."""
        used = await self._workplace.sandbox(sandbox)
        rows = await used.files.list(path, depth=depth)
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
        more = f"\n[{len(rows) - _MOST_ENTRIES:,} more]" if len(rows) > _MOST_ENTRIES else ""
        return clipped(shown + more, 2 * MOST_CHARACTERS) or "empty"


def image_kind(content: bytes) -> str | None:
    """Return the format of a picture that clients can show, by its first bytes; None for anything else."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "webp"
    return next((kind for begin, kind in _IMAGES.items() if content.startswith(begin)), None)
