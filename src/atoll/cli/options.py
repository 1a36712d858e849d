"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import click

from atoll.cli.delegation_options import delegation_options
from atoll.cli.leases import Length
from atoll.cli.limit_options import limit_options
from atoll.cli.model_options import model_options
from atoll.cli.network import NetworkParameter
from atoll.errors import AtollError
from atoll.types import VolumeMount
from atoll.types.internal import is_host_path

F = TypeVar("F", bound=Callable[..., Any])


def split_pairs(
    ctx: click.Context, param: click.Parameter, values: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Split each KEY=VALUE at its first equals sign."""
    split = []
    for value in values:
        key, equals, text = value.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE", ctx, param)
        split.append((key, text))
    return tuple(split)


def split_mounts(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, VolumeMount]:
    """Split each VOLUME:/PATH or VOLUME:/PATH:ro, and return the mounts by path."""
    mounts: dict[str, VolumeMount] = {}
    for value in values:
        name, _, place = value.partition(":")
        path = place[:-3] if place.endswith((":ro", ":rw")) else place
        if is_host_path(name):
            raise click.BadParameter(
                f"{name!r} is a path of this machine, which no sandbox sees: give VOLUME:/PATH with a name from "
                "`atoll volume create`, or copy it with `atoll cp`",
                ctx,
                param,
            )
        if not name or not path.startswith("/"):
            raise click.BadParameter(f"{value!r} is not VOLUME:/PATH or VOLUME:/PATH:ro", ctx, param)
        if path in mounts:
            raise click.BadParameter(f"two volumes are given for {path}", ctx, param)
        mounts[path] = VolumeMount(name, read_only=place.endswith(":ro"))
    return mounts


def pairs_option(*names: str, text: str) -> Callable[[F], F]:
    """Add an option KEY=VALUE that may be given more than once."""
    return click.option(*names, metavar="KEY=VALUE", multiple=True, callback=split_pairs, help=text)


def json_option(command: F) -> F:
    """Add ``--json``. It is parsed first, so that errors in other options are shown as JSON too."""
    return click.option("--json", "as_json", is_flag=True, is_eager=True, help="Print the result as JSON.")(
        command
    )


def sandbox_argument(command: F) -> F:
    """Add the argument SANDBOX: an id or a name."""
    return click.argument("sandbox", metavar="SANDBOX", shell_complete=complete_sandbox)(command)


def sandboxes_argument(command: F) -> F:
    """Add the argument SANDBOX, once or more often."""
    argument = click.argument(
        "sandboxes", metavar="SANDBOX...", nargs=-1, required=True, shell_complete=complete_sandbox
    )
    return argument(command)


def check_terminal(ctx: click.Context, param: click.Parameter, wanted: bool) -> bool:
    """Refuse a terminal together with ``--json``.

    A terminal's bytes are not the text of two streams, and they would go where the result goes.
    """
    if wanted and ctx.params.get("as_json"):
        raise click.BadParameter("a terminal's output cannot be JSON: leave out --json", ctx, param)
    if wanted:
        # here, so that `atoll run` makes no sandbox first
        from atoll.cli.terminal import need_terminals

        need_terminals("leave out --terminal: programs run without one")
    return wanted


def program_options(command: F) -> F:
    """Add the options of ``run`` and ``exec`` for the program: directory, user, time, terminal, arguments."""
    for add in (
        click.argument("argv", metavar="ARGV...", nargs=-1, required=True, type=click.UNPROCESSED),
        click.option(
            "-t",
            "--terminal",
            is_flag=True,
            callback=check_terminal,
            help="Give the program a terminal; not with --json.",
        ),
        click.option(
            "--timeout",
            "timeout_s",
            type=Length(least_s=0.001),
            metavar="LENGTH",
            help="Kill the program after this time, like 90s, 10m or 2h; default: never.",
        ),
        click.option("--user", metavar="NAME", help="Run as this user inside."),
        click.option("--cwd", metavar="DIR", help="Directory inside; default: the user's home."),
    ):
        command = add(command)
    return command


def env_option(command: F) -> F:
    """Add ``--env KEY=VALUE``, once or more often."""
    return pairs_option("-e", "--env", text="Set an environment variable inside; repeatable.")(command)


def spec_options(command: F) -> F:
    """Add the options of ``run`` and ``create`` for the new sandbox, except its variables."""
    for add in (
        click.option("--best-effort", is_flag=True, help="Accept limits that this host cannot enforce."),
        click.option(
            "--on-crash",
            type=click.Choice(["reboot", "rollback", "stop"]),
            help="What its next use does after a crash; default: reboot, or as the snapshot says.",
        ),
        limit_options,
        click.option(
            "--within",
            "within_s",
            type=Length(off=False, least_s=0.001),
            metavar="LENGTH",
            help="Give up after this time, including a pull or build of the image, and leave no sandbox.",
        ),
        click.option(
            "--network",
            metavar="POLICY",
            type=NetworkParameter(),
            help="What the sandbox may reach: internet, packages, web-read-only, none, or a file in TOML or "
            "JSON; default: internet, or as the snapshot says.",
        ),
        click.option(
            "--volume",
            "volumes",
            metavar="VOLUME:/PATH[:ro]",
            multiple=True,
            callback=split_mounts,
            help="Mount a volume at this path, read-only with :ro; repeatable.",
        ),
        click.option(
            "--ports",
            type=click.Choice(["open", "closed"]),
            default="open",
            help="Who reaches its ports through `atoll serve`: open is everybody who knows its id, closed only "
            "a client with its traffic token or a signed link; default: open.",
        ),
        delegation_options,
        model_options,
        pairs_option("--metadata", text="Label to filter lists by; repeatable."),
        click.option("--from-snapshot", metavar="SNAPSHOT", help="Restore this snapshot, memory and disk."),
        click.option("--template", metavar="NAME[:TAG]", help="Start from this template."),
        click.option("--start", is_flag=True, help="Run the image's own program in it."),
        click.option(
            "--image", metavar="IMAGE", help="Image to start from, like python:3.12; default: base."
        ),
        click.option(
            "--team",
            metavar="TEAM",
            help="Team that owns it and whose quotas it counts against; default: no team.",
        ),
        click.option("--name", metavar="NAME", help="Name of the sandbox; default: none."),
    ):
        command = add(command)
    return command


def complete_sandbox(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names and ids that begin with what was typed, or none if atoll cannot tell."""
    from atoll import Sandbox

    # A shell cannot show an error while somebody types.
    with suppress(AtollError):
        infos = Sandbox.list()
        known = [known for info in infos for known in (info.name, info.sandbox_id) if known]
        return [known_ref for known_ref in known if known_ref.startswith(incomplete)]
    return []
