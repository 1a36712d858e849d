"""``atoll key``."""

from __future__ import annotations

import time

import click

from atoll import Keys
from atoll.cli.batch import for_each
from atoll.cli.lazy_commands import Group
from atoll.cli.leases import Length
from atoll.cli.options import json_option
from atoll.cli.output import note, show_json
from atoll.cli.text import age, moment, table
from atoll.types import KeyInfo


@click.group(name="key", cls=Group)
def command() -> None:
    """Create, list and revoke the keys with which teams use a server."""


@command.command(name="create")
@click.argument("team")
@click.option("--name", required=True, metavar="NAME", help="Name of the key, for people.")
@click.option(
    "--expires",
    "expires_in_s",
    type=Length(),
    metavar="LENGTH",
    help="How long the key is valid, like 12h or 90d; default: until it is revoked.",
)
@json_option
def create_key(team: str, name: str, expires_in_s: float | None, as_json: bool) -> None:
    r"""Create a key for a team and print it. It is shown only this once: only its hash is stored.

    A client sends it as X-API-Key; the E2B SDKs take it from E2B_API_KEY.

    \b
    Example:
      atoll key create reef --name laptop --expires 90d
      export E2B_API_KEY="$(atoll key create reef --name ci)"
    """
    made = Keys.create(team, name, expires_in_s)
    if as_json:
        show_json(made)
        return
    click.echo(made.key)
    note(f"its id is {made.info.key_id}; store the key: it is not shown again")


@command.command(name="ls")
@click.option("--team", metavar="TEAM", help="List only what this team owns.")
@json_option
def list_keys(team: str | None, as_json: bool) -> None:
    r"""List keys, oldest first, without the keys themselves. Ended keys are listed for 30 days.

    \b
    Example:
      atoll key ls --team reef
    """
    infos = Keys.list(team)
    if as_json:
        show_json(infos)
    else:
        click.echo(_as_table(infos))


@command.command(name="revoke")
@click.argument("key_ids", metavar="KEY_ID...", nargs=-1, required=True)
@json_option
def revoke_keys(key_ids: tuple[str, ...], as_json: bool) -> None:
    r"""Revoke keys. They become invalid at once, and at a server within 5 seconds.

    \b
    Example:
      atoll key revoke key-0123456789abcdef
    """
    for_each(key_ids, Keys.revoke, as_json=as_json, shown=lambda infos: list(infos.values()))


def _as_table(infos: list[KeyInfo]) -> str:
    now_s = time.time()
    rows = [
        [
            info.key_id,
            info.team,
            info.name,
            f"{info.prefix}…",
            age(info.created_at, now_s),
            "never" if info.used_at is None else f"{age(info.used_at, now_s)} ago",
            _state(info, now_s),
        ]
        for info in infos
    ]
    return table(["ID", "TEAM", "NAME", "KEY", "AGE", "USED", "STATE"], rows)


def _state(info: KeyInfo, now_s: float) -> str:
    if info.revoked_at is not None:
        return "revoked"
    if info.expires_at is None:
        return "open"
    return f"until {moment(info.expires_at)}" if info.expires_at > now_s else "expired"
