"""``atoll volume``."""

from __future__ import annotations

import math
import time
from functools import partial

import click

from atoll import Volumes
from atoll.cli.batch import for_each
from atoll.cli.lazy_commands import Group
from atoll.cli.options import json_option
from atoll.cli.output import show_json
from atoll.cli.quotas import Most
from atoll.cli.sizes import mib_of
from atoll.cli.text import age, plain, size, table

team_option = click.option("--team", metavar="TEAM", help="Team that owns the volumes; default: no team.")


@click.group(name="volume", cls=Group)
def command() -> None:
    """Create, change, list and delete volumes: directories that outlive sandboxes and can appear in several of them."""


@command.command(name="create")
@click.argument("name")
@click.option(
    "--quota", type=Most(mib_of), metavar="SIZE", help="Let it use this much disk at most, in MiB or like 5g."
)
@team_option
@json_option
def create(name: str, quota: float | None, team: str | None, as_json: bool) -> None:
    r"""Create an empty volume and print its id.

    \b
    Example:
      atoll volume create data --quota 1024
      atoll create --volume data:/data
    """
    info = Volumes.create(name, team=team, quota_mib=_mib(quota))
    if as_json:
        show_json(info)
    else:
        click.echo(info.volume_id)


@command.command(name="set")
@click.argument("volume", metavar="VOLUME")
@click.option(
    "--quota",
    type=Most(mib_of),
    metavar="SIZE",
    required=True,
    help="Let it use this much disk at most, in MiB or like 5g; off removes the quota.",
)
@team_option
@json_option
def set_volume(volume: str, quota: float, team: str | None, as_json: bool) -> None:
    r"""Change the quota of a volume.

    A full volume takes no uploads, and no new sandbox that could write to it. In sandboxes that already have
    it, writes that need more room fail.

    \b
    Example:
      atoll volume set data --quota 2048
    """
    info = Volumes.set_quota(volume, _mib(quota), team=team)
    if as_json:
        show_json(info)


def _mib(quota: float | None) -> int | None:
    return None if quota is None or quota == math.inf else int(quota)


@command.command(name="ls")
@click.option("--team", metavar="TEAM", help="List only what this team owns.")
@json_option
def list_volumes(team: str | None, as_json: bool) -> None:
    r"""List volumes, oldest first.

    \b
    Example:
      atoll volume ls
    """
    infos = Volumes.list(team=team)
    if as_json:
        show_json(infos)
        return
    now_s = time.time()
    rows = [
        [
            info.volume_id,
            plain(info.name),
            plain(info.team or "-"),
            "-" if info.quota_mib is None else size(info.quota_mib << 20),
            age(info.created_at, now_s),
        ]
        for info in infos
    ]
    click.echo(table(["ID", "NAME", "TEAM", "QUOTA", "AGE"], rows))


@command.command(name="delete")
@click.argument("volumes", metavar="VOLUME...", nargs=-1, required=True)
@team_option
@json_option
def delete(volumes: tuple[str, ...], team: str | None, as_json: bool) -> None:
    r"""Delete volumes with all their content. A volume that a sandbox mounts, asleep or not, is refused.

    \b
    Example:
      atoll volume delete data
    """
    delete = partial(Volumes.delete, team=team)
    for_each(volumes, delete, as_json=as_json, shown=lambda done: {"deleted": list(done)})
