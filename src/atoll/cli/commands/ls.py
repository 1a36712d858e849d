"""``atoll ls``."""

from __future__ import annotations

import time

import click

from atoll import Sandbox
from atoll.cli.lazy_commands import Command
from atoll.cli.leases import lease_left
from atoll.cli.options import json_option, pairs_option
from atoll.cli.output import show_json
from atoll.cli.text import age, table
from atoll.types import SandboxInfo, SandboxState

STATES = ["creating", "running", "paused", "suspended", "crashed"]


@click.command(name="ls", cls=Command)
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES),
    multiple=True,
    help="Only sandboxes in this state; repeatable.",
)
@pairs_option("--metadata", text="Only sandboxes with this label; repeatable.")
@click.option("--team", metavar="TEAM", help="List only what this team owns.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the ids.")
@json_option
def command(
    states: tuple[SandboxState, ...],
    metadata: tuple[tuple[str, str], ...],
    team: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    r"""List sandboxes, oldest first. This does not wake a sandbox.

    \b
    Example:
      atoll ls --state suspended
    """
    infos = list(Sandbox.list(state=states or None, metadata=dict(metadata), team=team))
    if as_json:
        show_json(infos)
    elif quiet:
        for info in infos:
            click.echo(info.sandbox_id)
    else:
        click.echo(_as_table(infos))


def _state(info: SandboxInfo) -> str:
    """Return a sandbox's state, and whether it is unplugged, hangs, ends soon, or lost its memory in a crash."""
    if info.unplugged is not None:
        return f"{info.state}, unplugged"
    if info.unresponsive_since is not None:
        return f"{info.state}, unresponsive"
    if info.erased_at is not None:
        return f"{info.state}, left"
    is_current = info.recovered is not None and info.recovered.at >= info.started_at
    return "running, recovered" if info.state == "running" and is_current else info.state


def _as_table(infos: list[SandboxInfo]) -> str:
    now_s = time.time()
    rows = [
        [
            info.sandbox_id,
            info.name or "-",
            _state(info),
            info.image,
            age(info.created_at, now_s),
            lease_left(info),
            info.made_by or "-",
        ]
        for info in infos
    ]
    return table(["ID", "NAME", "STATE", "IMAGE", "AGE", "ENDS IN", "MADE BY"], rows)
