"""``atoll eval``."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path
from typing import Any

import click

from atoll.cli.lazy_commands import Group
from atoll.cli.options import F, json_option
from atoll.cli.output import show_json
from atoll.cli.text import plain, table
from atoll.errors import InvalidSpecError
from atoll.evals import Evaluation, Results

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_NEW_FILE = click.Path(dir_okay=False, path_type=Path)


def _outputs(command: F) -> F:
    """Add the options that say where results go."""
    command = click.option("--html", metavar="FILE", type=_NEW_FILE, help="Also write a page.")(command)
    command = click.option("--csv", metavar="FILE", type=_NEW_FILE, help="Also write the rows as CSV.")(
        command
    )
    return json_option(command)


@click.group(name="eval", cls=Group)
def command() -> None:
    r"""Compare strategies: run each in a fork of one prepared state.

    \b
    Example:
      atoll eval run sorting.py --journal sorting.journal
      atoll eval show sorting.journal --html sorting.html
    """


@command.command(name="run")
@click.argument("file", type=_FILE)
@click.option("--state", metavar="SNAPSHOT", help="Begin from this snapshot instead.")
@click.option("--at-once", type=click.IntRange(min=1), help="How many forks exist at a time.")
@click.option(
    "--journal", metavar="FILE", type=_NEW_FILE, help="Write each row to this file, and continue from it."
)
@_outputs
def run_evaluation(
    file: Path,
    state: str | None,
    at_once: int | None,
    journal: Path | None,
    as_json: bool,
    csv: Path | None,
    html: Path | None,
) -> None:
    r"""Run the evaluation that a Python file names `evaluation`, and print what each strategy achieved.

    With --journal, the same command continues where it stopped, even after kill -9.

    \b
    Example:
      atoll eval run sorting.py --at-once 8
      atoll eval run sorting.py --state ready --journal sorting.journal
    """
    given: dict[str, Any] = {"state": state, "at_once": at_once, "journal": journal}
    evaluation = dataclasses.replace(
        _loaded(file), **{name: value for name, value in given.items() if value is not None}
    )
    _show(evaluation.run(), as_json=as_json, csv=csv, html=html)


@command.command(name="show")
@click.argument("journal", type=_FILE)
@click.option("--rows", is_flag=True, help="Show each run instead of each strategy.")
@_outputs
def show_journal(journal: Path, rows: bool, as_json: bool, csv: Path | None, html: Path | None) -> None:
    r"""Show the results that a journal has so far, also while the evaluation runs.

    \b
    Example:
      atoll eval show sorting.journal
      atoll eval show sorting.journal --rows
    """
    results = Results.read(journal)
    if not rows or as_json:
        _show(results, as_json=as_json, csv=csv, html=html)
        return
    _write(results, csv, html)
    head = ("strategy", "repeat", "status", "score", "sandbox", "error")
    lines = [
        (
            row.strategy,
            str(row.repeat),
            row.status,
            "-" if row.score is None else f"{row.score:.4g}",
            row.sandbox_id or "-",
            (row.error or "").partition("\n")[0],
        )
        for row in results
    ]
    click.echo(table(head, lines))


def _show(results: Results, *, as_json: bool, csv: Path | None, html: Path | None) -> None:
    _write(results, csv, html)
    if as_json:
        show_json(
            {"evaluation": results.evaluation, "strategies": results.by_strategy(), "rows": list(results)}
        )
        return
    click.echo(str(results))
    best = results.best()
    if best is not None and best.score is not None:
        click.echo(f"best: {plain(best.strategy)}, {best.score:.4g}")


def _write(results: Results, csv: Path | None, html: Path | None) -> None:
    if csv is not None:
        results.to_csv(csv)
    if html is not None:
        results.to_html(html)


def _loaded(file: Path) -> Evaluation:
    """Return the ``evaluation`` of a Python file. The file may import modules beside it."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise InvalidSpecError(f"{file} is not a Python file", hint="give a file whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent.resolve()))
    spec.loader.exec_module(module)
    found = getattr(module, "evaluation", None)
    if not isinstance(found, Evaluation):
        raise InvalidSpecError(
            f"{file} names no evaluation",
            hint="let it define `evaluation = Evaluation(…)`, without running it",
        )
    return found
