"""``atoll image``."""

from __future__ import annotations

import time

import click

from atoll import Images
from atoll.cli.lazy import Group
from atoll.cli.options import json_option
from atoll.cli.output import show_json
from atoll.cli.progress import progress_shown
from atoll.cli.text import age, size, table


@click.group(name="image", cls=Group)
def command() -> None:
    """List, build and delete images, the root file systems that sandboxes start from."""


@command.command(name="list")
@json_option
def list_images(as_json: bool) -> None:
    r"""List the images that are on this machine.

    \b
    Example:
      atoll image list
    """
    infos = Images.list()
    if as_json:
        show_json(infos)
        return
    now_s = time.time()
    rows = [
        [info.name, info.digest[:19], size(info.size_bytes), age(info.created_at, now_s)] for info in infos
    ]
    click.echo(table(["NAME", "DIGEST", "SIZE", "AGE"], rows))


@command.command(name="build")
@click.argument("name", default="base")
@json_option
def build_image(name: str, as_json: bool) -> None:
    r"""Build an image if it is not there yet. The first sandbox does this by itself.

    \b
    Example:
      atoll image build base
    """
    with progress_shown() as report:
        info = Images.ensure(name, on_progress=report)
    if as_json:
        show_json(info)
    else:
        click.echo(info.digest)


@command.command(name="delete")
@click.argument("name")
@json_option
def delete_image(name: str, as_json: bool) -> None:
    r"""Delete an image that no sandbox and no snapshot needs.

    \b
    Example:
      atoll image delete base
    """
    Images.remove(name)
    if as_json:
        show_json({"deleted": name})
