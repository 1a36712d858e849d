"""``atoll secret``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO, TypeVar

import click

from atoll import Secrets
from atoll.cli.batch import for_each
from atoll.cli.lazy_commands import Group
from atoll.cli.options import json_option, pairs_option
from atoll.cli.output import show_json
from atoll.cli.text import age, plain, table
from atoll.errors import InvalidSpecError
from atoll.types import SecretInfo
from atoll.types.internal import SECRET_BYTES_MOST

F = TypeVar("F", bound=Callable[..., Any])
team_option = click.option("--team", metavar="TEAM", help="Team that owns the secrets; default: no team.")
host_option = click.option(
    "--host",
    "hosts",
    metavar="HOST",
    multiple=True,
    help="Host, like api.example.com or *.example.com, that alone may get it; repeatable; default: any.",
)
metadata_option = pairs_option("--metadata", text="Label; repeatable.")


def _refuse_value(ctx: click.Context, param: click.Parameter, given: object) -> None:
    """Explain why a value is no argument, without showing it."""
    if given:
        raise click.UsageError(
            "a secret's value is never an argument: other users would see it in the list of processes, "
            "and the shell would keep it; give it on standard input, or with --from-file FILE",
            ctx,
        )


def value_options(command: F) -> F:
    """Add ``--from-file``, and refuse a value among the arguments."""
    for add in (
        click.option(
            "--from-file",
            type=click.File("rb"),
            metavar="FILE",
            help="File with the value; default: standard input, and on a terminal a prompt.",
        ),
        click.option("--value", "as_option", hidden=True, callback=_refuse_value, expose_value=False),
        click.argument(
            "as_argument",
            nargs=-1,
            callback=_refuse_value,
            expose_value=False,
            type=click.UNPROCESSED,
            metavar="",
        ),
    ):
        command = add(command)
    return command


@click.group(name="secret", cls=Group)
def command() -> None:
    """Create, list, update and delete secrets: values that no sandbox sees, for a policy's rules to send."""


@command.command(name="create")
@click.argument("name")
@value_options
@host_option
@metadata_option
@click.option("--canary", is_flag=True, help="A fake: a sandbox that sends it is unplugged.")
@team_option
@json_option
def create_secret(
    name: str,
    from_file: BinaryIO | None,
    hosts: tuple[str, ...],
    metadata: tuple[tuple[str, str], ...],
    canary: bool,
    team: str | None,
    as_json: bool,
) -> None:
    r"""Store a secret, encrypted, and print its id. One newline at the end of the value is left out.

    \b
    Example:
      atoll secret create mail --host api.example.com < token
      atoll secret create mail            # on a terminal, asks for the value
    """
    value = _read_value(from_file)
    info = Secrets.create(name, value, hosts=hosts, metadata=dict(metadata), canary=canary, team=team)
    _show(info, as_json=as_json)


@command.command(name="ls")
@click.option("--team", metavar="TEAM", help="List only what this team owns.")
@json_option
def list_secrets(team: str | None, as_json: bool) -> None:
    r"""List secrets, oldest first, without their values.

    \b
    Example:
      atoll secret ls
    """
    infos = Secrets.list(team=team)
    if as_json:
        show_json(infos)
        return
    now_s = time.time()
    rows = [
        [
            info.secret_id,
            plain(info.name),
            plain(info.team or "-"),
            plain(", ".join(info.hosts) or "any"),
            "canary" if info.canary else "-",
            str(info.version),
            age(info.changed_at, now_s),
        ]
        for info in infos
    ]
    click.echo(table(["ID", "NAME", "TEAM", "HOSTS", "KIND", "VERSION", "CHANGED"], rows))


@command.command(name="update")
@click.argument("secret")
@value_options
@host_option
@click.option("--any-host", is_flag=True, help="Let any host get it.")
@metadata_option
@click.option("--keep-value", is_flag=True, help="Change only its hosts or labels.")
@team_option
@json_option
def update_secret(
    secret: str,
    from_file: BinaryIO | None,
    hosts: tuple[str, ...],
    any_host: bool,
    metadata: tuple[tuple[str, str], ...],
    keep_value: bool,
    team: str | None,
    as_json: bool,
) -> None:
    r"""Give a secret a new value. Sandboxes that run use it from now on.

    \b
    Example:
      atoll secret update mail < token
      atoll secret update mail --keep-value --host api.example.com
    """
    if any_host and hosts:
        raise click.UsageError("--any-host and --host exclude each other")
    if keep_value and from_file is not None:
        raise click.UsageError("--keep-value and --from-file exclude each other")
    info = Secrets.update(
        secret,
        None if keep_value else _read_value(from_file),
        hosts=hosts if hosts or any_host else None,
        metadata=dict(metadata) if metadata else None,
        team=team,
    )
    _show(info, as_json=as_json)


@command.command(name="delete")
@click.argument("secrets", metavar="SECRET...", nargs=-1, required=True)
@team_option
@json_option
def delete_secrets(secrets: tuple[str, ...], team: str | None, as_json: bool) -> None:
    r"""Erase secrets. Rules that name them refuse their requests from now on.

    \b
    Example:
      atoll secret delete mail
    """
    delete = partial(Secrets.delete, team=team)
    for_each(secrets, delete, as_json=as_json, shown=lambda done: {"deleted": list(done)})


def _show(info: SecretInfo, *, as_json: bool) -> None:
    if as_json:
        show_json(info)
    else:
        click.echo(info.secret_id)


def _read_value(file: BinaryIO | None) -> str:
    """Return the value from a file, from standard input, or from a prompt that does not show it."""
    if file is None and sys.stdin.isatty():
        value: str = click.prompt("Value", hide_input=True, confirmation_prompt="Once more", err=True)
        return value
    # Enough to tell a value that is too long, with its newline.
    data = (file or sys.stdin.buffer).read(SECRET_BYTES_MOST + 3)
    data = data.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidSpecError(
            "the secret's value is not valid UTF-8", hint="encode binary data, with base64 for example"
        ) from None
