"""``atoll team``."""

from __future__ import annotations

import time
from typing import Any, Literal

import click
import msgspec

from atoll import Quotas, Teams
from atoll.cli.batch import for_each
from atoll.cli.lazy_commands import Group
from atoll.cli.network import CeilingParameter, network_shown
from atoll.cli.options import json_option
from atoll.cli.output import show_json
from atoll.cli.quotas import changed, described, disk_shown, quota_options, used
from atoll.cli.text import age, moment, table
from atoll.types import EgressPolicy, TeamInfo


@click.group(name="team", cls=Group)
def command() -> None:
    """Create, change and delete teams. Teams share a server, and quotas limit what each may use."""


@command.command(name="create")
@click.argument("name")
@quota_options
@json_option
def create_team(name: str, as_json: bool, **options: Any) -> None:
    r"""Create a team. Quotas that are not given are unlimited.

    NAME is 1 to 32 lowercase letters, digits and dashes. Sandboxes without a team have no quotas.

    \b
    Example:
      atoll team create reef --running 20 --cpus 8 --memory 16384 --lease 24h
      atoll key create reef --name laptop
    """
    _show(Teams.create(name, changed(Quotas(), options)), as_json)


@command.command(name="set")
@click.argument("team")
@quota_options
@click.option(
    "--ceiling",
    metavar="POLICY",
    type=CeilingParameter(),
    help="The most that its sandboxes may reach: a preset, a file in TOML or JSON, or off.",
)
@json_option
def set_team(team: str, ceiling: EgressPolicy | Literal["off"] | None, as_json: bool, **options: Any) -> None:
    r"""Change the given quotas and the ceiling, and keep the others; off removes one.

    The team keeps what it uses beyond a quota, but gets no more. A ceiling applies at once, also to open
    connections.

    \b
    Example:
      atoll team set reef --running 50 --disk off
      atoll team set reef --ceiling web-read-only
    """
    info = Teams.get(team)
    quotas = changed(info.quotas, options)
    if ceiling is not None:
        info = Teams.set_ceiling(team, None if ceiling == "off" else ceiling)
    if quotas != info.quotas or ceiling is None:
        info = Teams.set_quotas(team, quotas)
    _show(info, as_json)


@command.command(name="ls")
@json_option
def list_teams(as_json: bool) -> None:
    r"""List teams, oldest first, with what they use.

    \b
    Example:
      atoll team ls
    """
    infos = Teams.list()
    if as_json:
        show_json(infos)
    else:
        click.echo(_as_table(infos))


@command.command(name="info")
@click.argument("team")
@json_option
def team_info(team: str, as_json: bool) -> None:
    r"""Show what a team uses, and its quotas.

    \b
    Example:
      atoll team info reef
    """
    info, use = Teams.get(team), Teams.use(team)
    if as_json:
        show_json({**msgspec.to_builtins(info), "use": use})
        return
    shown = [("name", info.name), ("created", moment(info.created_at)), *used(use, info.quotas)]
    if info.ceiling is not None:
        shown.append(("ceiling", network_shown(info.ceiling)))
    for title, value in shown:
        click.echo(f"{title:<12}{value}")


@command.command(name="delete")
@click.argument("teams", metavar="TEAM...", nargs=-1, required=True)
@json_option
def delete_teams(teams: tuple[str, ...], as_json: bool) -> None:
    r"""Delete teams, their keys and their secrets. A team that still owns something is refused.

    \b
    Example:
      atoll team delete reef
    """
    for_each(teams, Teams.delete, as_json=as_json, shown=lambda done: {"deleted": list(done)})


def _show(info: TeamInfo, as_json: bool) -> None:
    if as_json:
        show_json(info)
    else:
        click.echo(" ".join(filter(None, (info.name, described(info.quotas), _ceiling_shown(info)))))


def _ceiling_shown(info: TeamInfo) -> str:
    return "" if info.ceiling is None else f"ceiling: {network_shown(info.ceiling)}"


def _as_table(infos: list[TeamInfo]) -> str:
    now_s = time.time()
    rows = []
    for info in infos:
        use = Teams.use(info.name)
        counts = [str(use.running), str(use.suspended), f"{use.vcpus:.10g}", f"{use.memory_mib} MiB"]
        rows.append(
            [
                info.name,
                *counts,
                disk_shown(use),
                age(info.created_at, now_s),
                described(info.quotas) or "-",
            ]
        )
    return table(["NAME", "RUNNING", "ASLEEP", "CPUS", "MEMORY", "DISK", "AGE", "QUOTAS"], rows)
