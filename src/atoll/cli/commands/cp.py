"""``atoll cp``."""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import click

from atoll import Sandbox
from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option
from atoll.cli.output import show_json
from atoll.cli.progress import Report, progress_shown
from atoll.cli.sandboxes import held
from atoll.errors import FileMissingError, InvalidSpecError
from atoll.types import Progress


class Inside(NamedTuple):
    """A path in a sandbox."""

    sandbox: str
    path: str


@click.command(name="cp", cls=Command)
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@json_option
def command(source: str, target: str, as_json: bool) -> None:
    r"""Copy a file or a directory into a sandbox or out of one.

    One of the two is SANDBOX:PATH. Relative paths inside start at the user's home. As with cp, if TARGET is a
    directory, SOURCE is copied into it under its own name. For a local file with a colon, write ./a:b.

    \b
    Example:
      atoll cp data.csv work:/workspace/
      atoll cp work:/workspace/results ./results
    """
    inside_source, inside_target = parse(source), parse(target)
    with progress_shown() as report:
        if inside_target and not inside_source:
            at = _upload(Path(source), inside_target, report)
        elif inside_source and not inside_target:
            at = str(_download(inside_source, Path(target), report))
        else:
            raise InvalidSpecError(
                f"{source} and {target} are both inside sandboxes or both local",
                hint="write exactly one of them as SANDBOX:PATH",
            )
    if as_json:
        show_json({"copied": source, "to": at})


def parse(text: str) -> Inside | None:
    """Read SANDBOX:PATH.

    Returns None for a local path, which has no colon, or a slash before the colon, or on Windows a drive.
    """
    sandbox, colon, path = text.partition(":")
    if not colon or "/" in sandbox or not sandbox:
        return None
    if sys.platform == "win32" and ("\\" in sandbox or len(sandbox) == 1):
        return None
    return Inside(sandbox, path or ".")


def _upload(source: Path, target: Inside, report: Report) -> str:
    if not source.exists():
        raise InvalidSpecError(f"there is no file or directory {source}", hint="check the path")
    with held(target.sandbox) as sandbox:
        path = target.path
        if path.endswith("/") or _is_directory(sandbox, path):
            path = posixpath.join(path, _own_name(source))
        sandbox.files.upload(source, path, on_progress=_reported(str(source), report))
    return f"{target.sandbox}:{path}"


def _own_name(source: Path) -> str:
    """Return a source's own name. A link keeps its own name, as with cp; ``.`` and ``..`` have none."""
    return source.name if source.name not in ("", "..") else source.resolve().name


def _download(source: Inside, target: Path, report: Report) -> Path:
    if not target.parent.is_dir():
        raise InvalidSpecError(f"there is no directory {target.parent}", hint="create it first")
    with held(source.sandbox) as sandbox:
        if target.is_dir():
            # The user gave the name, but it may end in dots.
            name = posixpath.basename(posixpath.normpath(source.path))
            if name not in ("", ".", ".."):
                target = target / name
        sandbox.files.download(source.path, target, on_progress=_reported(source.path, report))
    return target


def _is_directory(sandbox: Sandbox, path: str) -> bool:
    with suppress(FileMissingError):
        return sandbox.files.stat(path, follow=True).kind == "directory"
    return False


def _reported(what: str, report: Report) -> Callable[[int, int | None], None]:
    return lambda done, total: report(Progress(step=f"copying {what}", done=done, total=total, unit="B"))
