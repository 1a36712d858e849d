"""Files of a stage of a build, on their way into another stage."""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator

from atoll.errors import FileError, FileMissingError, InvalidSpecError
from atoll.guest import get_tree
from atoll.sdk._async.agent import SILENCE_S, bytes_of
from atoll.sdk._async.sandbox import AsyncSandbox
from atoll.sdk._context import is_pattern, pattern_of
from atoll.sdk._deadline import Deadline


async def found_in_stage(sandbox: AsyncSandbox, stage: str, source: str) -> list[str]:
    """Return the paths in a stage's sandbox that the source of a copy step means.

    Raises:
        InvalidSpecError: There is none, or it is too long.
    """
    parts = pattern_of(source)
    plain = next((index for index, part in enumerate(parts) if is_pattern(part)), len(parts))
    top = f"/{'/'.join(parts[:plain])}"
    try:
        if plain == len(parts):
            await sandbox.files.stat(top, follow=True, user="root")
            return [top]
        pattern = "/".join(parts[plain:])
        found = [info.path for info in await sandbox.files.glob(pattern, top, hidden=True, user="root")]
    except (FileMissingError, FileError):
        found = []
    if not found:
        raise InvalidSpecError(f"{source!r} matches no file of the stage {stage}")
    return found


async def tree_in_stage(
    sandbox: AsyncSandbox, path: str, target: str, *, into: bool
) -> tuple[str, AsyncIterator[bytes]]:
    """Return the directory that a file, or a directory's content, goes to, and a tar of it.

    Args:
        sandbox: The stage's sandbox.
        path: The file or directory; a link is followed.
        target: The copy step's target.
        into: Whether the target is certainly a directory.
    """
    info = await sandbox.files.stat(path, follow=True, user="root")
    name = None
    if info.kind != "directory":
        name = posixpath.basename(path if into else target)
        target = target if into else posixpath.dirname(target)
    request = get_tree(path, "root", file_as=name)
    answer = await sandbox._agent.open(request, Deadline(None, silence_s=SILENCE_S))
    return target, bytes_of(answer)
