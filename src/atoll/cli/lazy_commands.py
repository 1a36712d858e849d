"""Commands that are imported only when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import click

from atoll.cli.failures import Failure
from atoll.cli.foreign import foreign_command, in_our_words
from atoll.errors import AtollError, InvalidSpecError
from atoll.exit_codes import ExitCode


def with_examples(settings: dict[str, Any]) -> dict[str, Any]:
    r"""Let a line with only ``\b`` in a raw docstring preserve the lines after it, as click does."""
    if settings.get("help"):
        settings["help"] = settings["help"].replace("\\b\n", "\b\n")
    return settings


def _told(error: click.UsageError, ctx: click.Context, *, as_json: bool) -> Exception:
    error = in_our_words(error, ctx.command_path.partition(" ")[2])
    if not as_json:
        return error
    return Failure(
        InvalidSpecError(error.format_message(), hint=f"see: {ctx.command_path} --help"), as_json=True
    )


def _asks_for_json(args: Sequence[str]) -> bool:
    return "--json" in args[: args.index("--") if "--" in args else None]


class Command(click.Command):
    """A command that shows its failures as text or as JSON, like its results."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **with_examples(settings))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options and arguments. Errors in them are shown as JSON if ``--json`` is given."""
        # checked before parsing: a "--json" further on may belong to the program that the command runs
        takes_json = any(each.name == "as_json" for each in self.params)
        asked = takes_json and _asks_for_json(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _told(error, ctx, as_json=bool(ctx.params.get("as_json", asked))) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. An error of atoll becomes a ``Failure`` that knows about ``--json``."""
        as_json = bool(ctx.params.get("as_json"))
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise _told(error, ctx, as_json=as_json) from error
        except AtollError as error:
            raise Failure(error, as_json=as_json) from error
        except BrokenPipeError:
            # click would report a failure; to a shell this is the same as SIGPIPE
            ctx.exit(ExitCode.READER_LEFT)


class Group(click.Group):
    """A group of such commands. Without arguments it shows its help."""

    command_class = Command

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        super().__init__(name, **with_examples(settings))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the command's name from the arguments. Without arguments, show the commands and exit."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        as_json = _asks_for_json(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _told(error, ctx, as_json=as_json) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name. If there is none, ``--json`` shows the error as JSON."""
        try:
            return self.named_command(ctx, args)
        except click.UsageError as error:
            raise _told(error, ctx, as_json=_asks_for_json(args)) from error

    def named_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name, as click does."""
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """A group that knows the names and first lines of its commands without importing them.

    Args:
        package: The package with the commands: command ``x`` is ``command`` in the module ``PACKAGE.x``.
        sections: By title in the help, the first line of help of each command by name.
        greeting: The text to print without arguments.
    """

    def __init__(
        self, *, package: str, sections: Mapping[str, Mapping[str, str]], greeting: str, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self._package = package
        self._sections = sections
        self._greeting = greeting
        self._names = {name for section in sections.values() for name in section}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the command's name from the arguments. Without arguments, print the greeting and exit."""
        if not args and not ctx.resilient_parsing:
            click.echo(self._greeting)
            ctx.exit()
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted(self._names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command. Returns None if no command has that name."""
        if cmd_name not in self._names:
            return None
        module = importlib.import_module(f"{self._package}.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def named_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name. For another tool's name, the error gives atoll's own."""
        if not ctx.resilient_parsing and not args[0].startswith("-") and args[0] not in self._names:
            raise click.UsageError(foreign_command(args[0], self.list_commands(ctx)), ctx)
        return super().named_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the lists of commands without importing any."""
        widest = max(map(len, self._names))
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), text) for name, text in commands.items()])
