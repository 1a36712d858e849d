"""``atoll service``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from atoll import HealthCheck
from atoll.cli.lazy_commands import Group
from atoll.cli.leases import Length
from atoll.cli.options import env_option, json_option, sandbox_argument
from atoll.cli.output import show_json, show_json_line
from atoll.cli.sandboxes import asked, held
from atoll.cli.text import age, moment, plain, table
from atoll.types import ServiceInfo

name_argument = click.argument("name", metavar="NAME")


@click.group(name="service", cls=Group)
def command() -> None:
    """Add, list, stop and remove services: programs that a sandbox keeps running."""


@command.command(name="add", context_settings={"allow_interspersed_args": False})
@sandbox_argument
@name_argument
@click.argument("argv", metavar="ARGV...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--restart",
    type=click.Choice(["always", "on-failure", "never"]),
    default="always",
    help="When it starts again after its end; default: always.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="Port that it listens on; without --health, checks connect to it.",
)
@click.option("--health", metavar="LINE", help="Shell line that exits with 0 while the service works.")
@click.option(
    "--health-every",
    "every_s",
    type=Length(off=False, least_s=0.1),
    metavar="LENGTH",
    help="Time from one check to the next; default: 10s.",
)
@click.option(
    "--schedule",
    metavar="WHEN",
    help="Run it at these times, in UTC: five fields as in cron, or 'every 10m'; default: keep it running.",
)
@click.option("--cwd", metavar="DIR", help="Directory inside; default: the user's home.")
@click.option("--user", metavar="NAME", help="Run as this user inside.")
@env_option
@json_option
def add(
    sandbox: str,
    name: str,
    argv: tuple[str, ...],
    every_s: float | None,
    health: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    r"""Add a service to a sandbox and start it. A sleeping sandbox wakes.

    A single ARGV with a blank in it is a shell line. Options come before SANDBOX.

    \b
    Example:
      atoll service add --port 8000 work web -- python3 -m http.server 8000
      atoll service add --restart on-failure work jobs 'cd jobs && exec ./worker'
      atoll service add --schedule '0 3 * * *' work nightly ./backup
    """
    argv = argv[1:] if argv[0] == "--" else argv
    options["env"] = dict(options["env"])
    check: HealthCheck | str | None = health
    if every_s is not None:
        check = HealthCheck(command=health, every_s=every_s)
    with held(sandbox) as target:
        line = len(argv) == 1 and " " in argv[0]
        info = target.services.add(name, argv[0] if line else list(argv), health=check, **options)
    if as_json:
        show_json(info)
    else:
        click.echo(plain(f"{info.name} {state_shown(info)}"))


@command.command(name="ls")
@sandbox_argument
@json_option
def list_services(sandbox: str, as_json: bool) -> None:
    r"""List the services of a sandbox and their states. This does not wake it.

    \b
    Example:
      atoll service ls work
    """
    with asked(sandbox) as target:
        infos = target.services.list()
    if as_json:
        show_json(infos)
        return
    click.echo(shown(infos, time.time()))


@command.command(name="logs")
@sandbox_argument
@name_argument
@click.option("-f", "--follow", is_flag=True, help="Keep printing new output until Ctrl-C.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    help="How many of the last lines to show first.",
)
@json_option
def show_logs(sandbox: str, name: str, follow: bool, lines: int, as_json: bool) -> None:
    r"""Show the last output of a service, from all of its runs. A sleeping sandbox wakes.

    The sandbox keeps the last MiB. --json prints a line with an object for each piece.

    \b
    Example:
      atoll service logs work web --follow --lines 20
    """
    with held(sandbox) as target:
        for output in target.services.logs(name, follow=follow, lines=lines):
            if as_json:
                show_json_line({"stream": output.stream, "text": output.text})
            else:
                text = "\n".join(map(plain, output.text.split("\n")))
                click.echo(text, nl=False, err=output.stream == "stderr")


def _mover(verb: str, text: str) -> None:
    @command.command(
        name=verb, help=f"{text} A sleeping sandbox wakes.\n\n\b\nExample:\n  atoll service {verb} work web"
    )
    @sandbox_argument
    @name_argument
    @json_option
    def move(sandbox: str, name: str, as_json: bool) -> None:
        with held(sandbox) as target:
            getattr(target.services, verb)(name)
            info = target.services.get(name)
        if as_json:
            show_json(info)
        else:
            click.echo(plain(f"{info.name} {state_shown(info)}"))


_mover("start", "Start a service that does not run.")
_mover("stop", "Stop a service until it is started, or the sandbox boots again.")
_mover("restart", "Stop a service, if it runs, and start it again.")


@command.command(name="rm")
@sandbox_argument
@name_argument
@json_option
def remove(sandbox: str, name: str, as_json: bool) -> None:
    r"""Stop a service and forget it with its output. A sleeping sandbox wakes.

    \b
    Example:
      atoll service rm work web
    """
    with held(sandbox) as target:
        target.services.remove(name)
    if as_json:
        show_json({"removed": [name]})


def shown(infos: Sequence[ServiceInfo], now_s: float) -> str:
    """Return a table of services. A scheduled service shows its schedule and its next run."""
    scheduled = any(info.spec.schedule for info in infos)
    rows = [
        [
            info.name,
            state_shown(info),
            "-" if info.since is None else age(info.since, now_s),
            str(info.pid or "-"),
            str(info.restarts),
            str(info.spec.port or "-"),
            *((info.spec.schedule or "-", _next_run(info)) if scheduled else ()),
            command_shown(info),
        ]
        for info in infos
    ]
    schedule = ("SCHEDULE (UTC)", "NEXT RUN") if scheduled else ()
    return table(["NAME", "STATE", "FOR", "PID", "RESTARTS", "PORT", *schedule, "COMMAND"], rows)


def _next_run(info: ServiceInfo) -> str:
    return "-" if info.next_at is None else moment(info.next_at)


def state_shown(info: ServiceInfo) -> str:
    """Return the state of a service, and its fault if it has one."""
    if info.healthy is False:
        return f"{info.state}, unhealthy"
    if info.state in ("waiting", "ended") and info.reason:
        return f"{info.state}: {info.reason}"
    return info.state


def command_shown(info: ServiceInfo) -> str:
    """Return what a service runs, as one line."""
    wanted = info.spec.command
    return wanted if isinstance(wanted, str) else " ".join(wanted)
