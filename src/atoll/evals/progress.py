"""Shows on a terminal how far an evaluation is."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from atoll.evals.rows import Row


@contextmanager
def rows_shown(
    total: int, done: int, on_row: Callable[[Row], object] | None
) -> Iterator[Callable[[Row], object]]:
    """Give a function to call with each row: the caller's own, or a function that shows a bar on a terminal.

    Args:
        total: How many runs there are.
        done: How many of the runs have ended before.
        on_row: The caller's function.
    """
    if on_row is not None:
        yield on_row
        return
    if os.environ.get("ATOLL_PROGRESS", "auto") == "off" or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    counts: Counter[str] = Counter()
    columns = (
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, completed=done)

        def show(row: Row) -> None:
            counts[row.status] += 1
            told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
            bar.update(task, advance=1, description=told)

        yield show
