"""``atoll image``."""

from __future__ import annotations

import shlex
import time

import click

from atoll import Images
from atoll.cli.batch import for_each
from atoll.cli.lazy_commands import Group
from atoll.cli.options import json_option
from atoll.cli.output import show_json
from atoll.cli.progress import progress_shown
from atoll.cli.text import age, moment, plain, size, table
from atoll.cli.verify_report import show_report
from atoll.exit_codes import code_of_answer
from atoll.types import ImageInfo


@click.group(name="image", cls=Group)
def command() -> None:
    """Pull, list and delete images, the root file systems that sandboxes start from."""


@command.command(name="ls")
@json_option
def list_images(as_json: bool) -> None:
    r"""List the images that are on this machine.

    \b
    Example:
      atoll image ls
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
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@json_option
def delete_images(names: tuple[str, ...], as_json: bool) -> None:
    r"""Delete images that no sandbox or snapshot needs.

    \b
    Example:
      atoll image delete python:3.12
    """
    for_each(names, Images.delete, as_json=as_json, shown=lambda done: {"deleted": list(done)})


@command.command(name="pull")
@click.argument("reference")
@json_option
def pull_image(reference: str, as_json: bool) -> None:
    r"""Pull an image as its registry has it now, and print the name that always means this version.

    Credentials come from the host's Docker configuration. An interrupted pull keeps what it has received.

    \b
    Example:
      atoll image pull python:3.12
      atoll image pull ghost.example/team/tool:1
    """
    with progress_shown() as report:
        info = Images.pull(reference, on_progress=report)
    if as_json:
        show_json(info)
    else:
        click.echo(plain(info.pinned or info.digest))


@command.command(name="verify")
@click.argument("names", metavar="[NAME...]", nargs=-1)
@json_option
@click.pass_context
def verify_images(ctx: click.Context, names: tuple[str, ...], as_json: bool) -> None:
    r"""Check the stored files of images, and name each damaged one. Without arguments, check all images.

    The exit code is 0 if no file is damaged, else 1.

    \b
    Example:
      atoll image verify python:3.12
    """
    with progress_shown() as progress:
        report = Images.verify(*names, on_progress=progress)
    show_report(report, as_json=as_json)
    ctx.exit(code_of_answer(report.whole))


@command.command(name="inspect")
@click.argument("name")
@json_option
def inspect_image(name: str, as_json: bool) -> None:
    r"""Show everything about an image.

    \b
    Example:
      atoll image inspect python:3.12
    """
    info = Images.get(name)
    if as_json:
        show_json(info)
        return
    for title, value in _lines(info):
        click.echo(f"{title:<12}{plain(value)}")


def _lines(info: ImageInfo) -> list[tuple[str, str]]:
    lines = [
        ("name", info.name),
        ("digest", info.digest),
        ("pinned", info.pinned or "-"),
        ("size", size(info.size_bytes)),
        ("created", moment(info.created_at)),
        ("user", f"{info.user} in {info.cwd}"),
        ("entrypoint", shlex.join(info.entrypoint) or "-"),
        ("cmd", shlex.join(info.cmd) or "-"),
    ]
    if info.pulled_for is not None:
        lines.append(("pulled for", info.pulled_for))
    lines += [("env", f"{key}={value}") for key, value in sorted(info.env.items())]
    return lines + [("layer", layer) for layer in info.layers]
