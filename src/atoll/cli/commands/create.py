"""``atoll create``."""

from __future__ import annotations

from typing import Any

import click

from atoll import Sandbox, Wait
from atoll.cli.host_size import note_beyond_host
from atoll.cli.lazy_commands import Command
from atoll.cli.leases import lifecycle, lifecycle_options
from atoll.cli.options import env_option, json_option, spec_options
from atoll.cli.output import show_json
from atoll.cli.progress import progress_shown
from atoll.cli.sandboxes import killed_if_stopped
from atoll.cli.spec import wanted


@click.command(name="create", cls=Command)
@spec_options
@lifecycle_options
@env_option
@json_option
def command(as_json: bool, **options: Any) -> None:
    r"""Create a sandbox and print its id. It lives until you kill it, unless --lease says otherwise.

    \b
    Example:
      atoll create --name work --env LANG=C.UTF-8
      atoll create --from-snapshot ready
      atoll create --volume data:/data
      atoll create --lease 1h --on-lease-end suspend
    """
    given = {**wanted(options), "lifecycle": lifecycle(options)}
    note_beyond_host(given["limits"])
    with killed_if_stopped() as made:
        with progress_shown() as report:
            wait = Wait(within_s=options["within_s"], on_progress=report)
            made.append(Sandbox.create(**given, keep=True, wait=wait))
        with made[0] as sandbox:
            if as_json:
                show_json(sandbox.info())
            else:
                click.echo(sandbox.id)
