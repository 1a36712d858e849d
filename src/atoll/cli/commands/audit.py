"""``atoll audit``."""

from __future__ import annotations

import time

import click

from atoll import Audit
from atoll.cli.lazy_commands import Group
from atoll.cli.leases import Length
from atoll.cli.options import json_option
from atoll.cli.output import note, show_json, show_json_line
from atoll.cli.progress import progress_shown
from atoll.cli.text import plain
from atoll.exit_codes import code_of_answer
from atoll.types import AuditEntry

_NEWEST = 20


@click.group(name="audit", cls=Group)
def command() -> None:
    """Show who did what in this home, and check that nobody has changed the log."""


@command.command(name="tail")
@click.option(
    "-n", "newest", type=click.IntRange(min=0), default=_NEWEST, show_default=True, help="How many."
)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new entries until Ctrl-C.")
@json_option
def tail(newest: int, follow: bool, as_json: bool) -> None:
    r"""Show the newest entries.

    --json prints a line with an object for each entry.

    \b
    Example:
      atoll audit tail --follow
    """
    for entry in Audit.entries(newest=newest, follow=follow):
        _show(entry, as_json=as_json)


@command.command(name="query")
@click.option("--sandbox", metavar="ID", help="Only entries about the sandbox with this id, killed or not.")
@click.option("--team", metavar="TEAM", help="Only entries about this team and its sandboxes.")
@click.option(
    "--act", metavar="ACT", help="Only this act, like sandbox.killed, or all of a kind, like egress."
)
@click.option(
    "--delegation", metavar="UID", help="Only entries about sandboxes that act under this delegation."
)
@click.option("--since", "since_s", type=Length(), metavar="LENGTH", help="Only the last 90s, 12h or 7d.")
@json_option
def query(
    sandbox: str | None,
    team: str | None,
    act: str | None,
    delegation: str | None,
    since_s: float | None,
    as_json: bool,
) -> None:
    r"""Show the entries that match, oldest first.

    --json prints a line with an object for each entry.

    \b
    Example:
      atoll audit query --act sandboxes.delete --since 7d
    """
    since = None if since_s is None else time.time() - since_s
    entries = Audit.entries(sandbox=sandbox, team=team, act=act, delegation=delegation, since=since)
    for entry in entries:
        _show(entry, as_json=as_json)


@command.command(name="export")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "ocsf"]),
    default="jsonl",
    show_default=True,
    help="The form.",
)
@click.option("--since", "since_s", type=Length(), metavar="LENGTH", help="Only the last 90s, 12h or 7d.")
@click.option("-f", "--follow", is_flag=True, help="Keep printing new entries until Ctrl-C.")
def export(form: str, since_s: float | None, follow: bool) -> None:
    r"""Print all entries, oldest first, as lines of JSON: as they are, or as events of OCSF 1.8.0.

    \b
    Example:
      atoll audit export --format ocsf --since 1d >events.jsonl
    """
    since = None if since_s is None else time.time() - since_s
    for entry in Audit.entries(since=since, follow=follow):
        show_json_line(Audit.ocsf(entry) if form == "ocsf" else entry)


@command.command(name="verify")
@click.option(
    "--anchors",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="The lines that the command of ATOLL_AUDIT_ANCHOR got.",
)
@json_option
@click.pass_context
def verify(ctx: click.Context, anchors: str | None, as_json: bool) -> None:
    r"""Check the whole log against its key. The exit code is 1 if somebody has changed it.

    With --anchors, also say how far these vouch for it.

    \b
    Example:
      atoll audit verify
    """
    with progress_shown() as progress:
        report = Audit.verify(anchors=anchors, on_progress=progress)
    if as_json:
        show_json(report)
    else:
        for fault in report.faults:
            click.echo(str(fault))
        if report.whole:
            note(f"the log is as it was written: {report.entries} entries, {report.first} to {report.last}")
        if report.anchored is not None:
            note(f"entries {report.first} to {report.anchored} are anchored")
        elif anchors is not None:
            note("no entry is anchored")
    ctx.exit(code_of_answer(report.whole))


def _show(entry: AuditEntry, *, as_json: bool) -> None:
    if as_json:
        show_json_line(entry)
        return
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(entry.at))
    words = [str(entry.sequence), moment, entry.act]
    if entry.outcome != "ok":
        words.append(f"refused: {entry.outcome}")
    named = {
        "sandbox": entry.sandbox_id,
        "team": entry.team,
        "under": entry.delegation,
        **entry.details,
        "by": entry.caller or entry.details.get("by"),
    }
    words += [f"{name}={value}" for name, value in named.items() if value is not None]
    click.echo(plain("  ".join(words)))
