"""``atoll login``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option
from atoll.cli.output import note, show_json
from atoll.errors import InvalidSpecError
from atoll.sdk import Login

_KEY_BYTES = 4096


@click.command(name="login", cls=Command)
@click.argument("url", metavar="URL")
@click.option(
    "--key-file", type=click.Path(path_type=Path), metavar="FILE", help="A file with the key; default: ask."
)
@click.option(
    "--ca",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File with the authority of the server's certificate.",
)
@json_option
def command(url: str, key_file: Path | None, ca: Path | None, as_json: bool) -> None:
    r"""Use the sandboxes of a server from now on.

    This asks for the key, or reads it from standard input, and stores it for this user alone.

    \b
    Example:
      atoll login https://api.sandboxes.example.com
      atoll ls
    """
    hello = Login.store(url, _key(key_file), ca=ca)
    if as_json:
        show_json(hello)
    else:
        note(f"team {hello.team} on {url}; `atoll logout` returns to this machine")


def _key(file: Path | None) -> str:
    if file is not None:
        try:
            return file.read_text("utf-8")[:_KEY_BYTES].strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidSpecError(
                f"{file} cannot be read: {error}", hint="give a file with the key"
            ) from None
    if sys.stdin.isatty():
        return str(click.prompt("API key", hide_input=True, err=True)).strip()
    return sys.stdin.read(_KEY_BYTES).strip()
