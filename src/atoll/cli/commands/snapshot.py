"""``atoll snapshot``."""

from __future__ import annotations

import time
from collections.abc import Mapping

import click

from atoll import Snapshots
from atoll.cli.batch import for_each
from atoll.cli.lazy_commands import Group
from atoll.cli.options import complete_sandbox, json_option, sandbox_argument
from atoll.cli.output import note, show_json
from atoll.cli.progress import progress_shown
from atoll.cli.sandboxes import held, names_of_sandboxes
from atoll.cli.text import age, plain, size, table
from atoll.cli.verify_report import show_report
from atoll.exit_codes import code_of_answer
from atoll.types import SnapshotInfo

sandbox_option = click.option(
    "--sandbox", metavar="SANDBOX", shell_complete=complete_sandbox, help="Only snapshots of this sandbox."
)


@click.group(name="snapshot", cls=Group)
def command() -> None:
    r"""Create, list and delete snapshots: stored states to fork from and roll back to.

    A snapshot outlives its sandbox, and takes disk space until it is deleted.

    \b
    Example:
      atoll snapshot create work --name before-upgrade
      atoll snapshot ls
      atoll snapshot delete before-upgrade
    """


@command.command(name="create")
@sandbox_argument
@click.option("--name", metavar="NAME", help="Name of the snapshot; default: none.")
@click.option("--comment", default="", metavar="TEXT", help="Comment that lists show.")
@json_option
def create(sandbox: str, name: str | None, comment: str, as_json: bool) -> None:
    r"""Store a sandbox's memory and disk as they are at this moment, and print the id. The sandbox keeps running.

    The snapshot stays, even after the sandbox is killed, until `atoll snapshot delete`.

    \b
    Example:
      atoll snapshot create work --name before-upgrade
    """
    with held(sandbox) as source:
        info = source.snapshot(name=name, comment=comment)
    if as_json:
        show_json(info)
    else:
        click.echo(info.snapshot_id)
        kept = info.name or info.snapshot_id
        note(
            f"it stays until `atoll snapshot delete {kept}`; `atoll snapshot ls` lists all, with their sizes"
        )


@command.command(name="ls")
@sandbox_option
@click.option("--team", metavar="TEAM", help="List only what this team owns.")
@json_option
def list_snapshots(sandbox: str | None, team: str | None, as_json: bool) -> None:
    r"""List snapshots, oldest first.

    \b
    Example:
      atoll snapshot ls --sandbox work
    """
    infos = Snapshots.list(sandbox=sandbox, team=team)
    if as_json:
        show_json(infos)
    else:
        click.echo(_as_table(infos, names_of_sandboxes()))


@command.command(name="tree")
@sandbox_option
@json_option
def tree(sandbox: str | None, as_json: bool) -> None:
    r"""Show which snapshot was made on top of which other.

    \b
    Example:
      atoll snapshot tree
    """
    infos = Snapshots.list(sandbox=sandbox)
    if as_json:
        show_json(_nested(infos, None))
        return
    for line in tree_lines(infos):
        click.echo(line)


@command.command(name="delete")
@click.argument("snapshots", metavar="SNAPSHOT...", nargs=-1, required=True)
@json_option
def delete(snapshots: tuple[str, ...], as_json: bool) -> None:
    r"""Delete snapshots for good. A snapshot that others depend on is refused.

    \b
    Example:
      atoll snapshot delete before-upgrade
    """
    for_each(snapshots, Snapshots.delete, as_json=as_json, shown=lambda done: {"deleted": list(done)})


@command.command(name="verify")
@click.argument("snapshots", metavar="[SNAPSHOT...]", nargs=-1)
@json_option
@click.pass_context
def verify(ctx: click.Context, snapshots: tuple[str, ...], as_json: bool) -> None:
    r"""Check stored checkpoints and layers, and name each damaged file.

    Without arguments, check all snapshots, and also the layers and checkpoints of sandboxes. Sandboxes keep
    running meanwhile. The exit code is 0 if no file is damaged, else 1.

    \b
    Example:
      atoll snapshot verify before-upgrade
    """
    with progress_shown() as progress:
        report = Snapshots.verify(*snapshots, on_progress=progress)
    show_report(report, as_json=as_json)
    ctx.exit(code_of_answer(report.whole))


def _as_table(infos: list[SnapshotInfo], names: Mapping[str, str]) -> str:
    now_s = time.time()
    rows = [
        [
            info.snapshot_id,
            info.name or "-",
            names.get(info.sandbox_id, info.sandbox_id),
            size(info.memory_bytes),
            size(info.disk_bytes),
            age(info.created_at, now_s),
            "automatic" if info.automatic else info.comment,
        ]
        for info in infos
    ]
    return table(["ID", "NAME", "SANDBOX", "MEMORY", "DISK", "AGE", "COMMENT"], rows)


def _children(infos: list[SnapshotInfo], parent_id: str | None) -> list[SnapshotInfo]:
    """Return the snapshots right below a snapshot. For None, return those whose parent is not in the list."""
    if parent_id is not None:
        return [info for info in infos if info.parent_id == parent_id]
    known = {info.snapshot_id for info in infos}
    return [info for info in infos if info.parent_id not in known]


def _nested(infos: list[SnapshotInfo], parent_id: str | None) -> list[dict[str, object]]:
    return [
        {"snapshot": info, "children": _nested(infos, info.snapshot_id)}
        for info in _children(infos, parent_id)
    ]


def tree_lines(infos: list[SnapshotInfo], parent_id: str | None = None, indent: str = "") -> list[str]:
    """Draw the snapshots below one, or all of them, one per line."""
    lines = []
    children = _children(infos, parent_id)
    for info in children:
        last = info is children[-1]
        branch, deeper = ("", "") if parent_id is None else ("└─ ", "   ") if last else ("├─ ", "│  ")
        lines.append(f"{indent}{branch}{_described(info)}")
        lines += tree_lines(infos, info.snapshot_id, indent + deeper)
    return lines


def _described(info: SnapshotInfo) -> str:
    told = "automatic" if info.automatic else info.comment
    comment = f"  {plain(told)}" if told else ""
    return f"{plain(info.name or info.snapshot_id)}  {size(info.memory_bytes + info.disk_bytes)}{comment}"
