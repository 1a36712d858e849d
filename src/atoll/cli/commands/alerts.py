"""``atoll alerts``."""

from __future__ import annotations

import time

import click

from atoll.cli.options import json_option
from atoll.cli.output import note, show_json_line
from atoll.cli.text import plain
from atoll.sdk import Alerts
from atoll.types import Alert

_NEWEST = 20


@click.command(name="alerts")
@click.argument("sandbox", required=False)
@click.option(
    "-n", "newest", type=click.IntRange(min=0), default=_NEWEST, show_default=True, help="How many."
)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new ones until Ctrl-C.")
@json_option
def command(sandbox: str | None, newest: int, follow: bool, as_json: bool) -> None:
    r"""Show what a person may want to know at once: many refusals, a canary, a new host, a secret's first use.

    --json prints a line with an object for each. `atoll audit query --act alert` has older ones.

    \b
    Example:
      atoll alerts --follow
    """
    if follow:
        for alert in Alerts.follow(sandbox=sandbox, newest=newest):
            _show(alert, as_json=as_json)
        return
    found = Alerts.list(sandbox=sandbox, newest=newest)
    for alert in found:
        _show(alert, as_json=as_json)
    if not found and not as_json:
        note("there are no alerts")


def _show(alert: Alert, *, as_json: bool) -> None:
    if as_json:
        show_json_line(alert)
        return
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(alert.at))
    who = alert.sandbox_name or alert.sandbox_id or "-"
    team = "" if alert.team is None else f"  team={alert.team}"
    click.echo(plain(f"{moment}  {alert.rule}  {who}  {alert.title}{team}"))
