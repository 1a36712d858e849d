"""The reference of the command line: what `--help` says, of each command."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from atoll.cli.atoll import COMMANDS, atoll

_WIDTH = 96
_HEAD = """# Commands

Every command with its options, as `--help` says them. [First steps](../guide/first-steps.md) shows
how they are used.
"""


def commands_page() -> str:
    """The page, in Markdown."""
    parts = [_HEAD, _section("atoll", atoll)]
    for name in COMMANDS:
        parts += [_section(words, command) for words, command in every(name)]
    return "\n".join(parts)


def every(name: str) -> Iterator[tuple[str, click.Command]]:
    """A command and all below it, each with the words that call it."""
    command = _of_another_process(name) or atoll.get_command(click.Context(atoll), name)
    assert command is not None
    yield f"atoll {name}", command
    if isinstance(command, click.Group):
        for word in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), word)
            assert below is not None
            yield f"atoll {name} {word}", below


def _of_another_process(name: str) -> click.Command | None:
    """The command that a process of its own reads the options with."""
    if name == "serve":
        from atoll.server.__main__ import serve

        return serve
    if name == "mcp":
        from atoll.mcp.__main__ import command

        return command
    return None


def _section(words: str, command: click.Command) -> str:
    *before, last = words.split()
    context = click.Context(
        command,
        info_name=last if command.name == last or not before else words,
        parent=click.Context(click.Command(" ".join(before)), info_name=" ".join(before)) if before else None,
        max_content_width=_WIDTH,
        terminal_width=_WIDTH,
    )
    level = "#" * min(len(before) + 2, 3)
    return f"{level} {words}\n\n```text\n{inspect.cleandoc(command.get_help(context)).rstrip()}\n```\n"
