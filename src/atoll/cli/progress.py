"""Progress of long works, on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from atoll.cli.output import note
from atoll.cli.text import plain
from atoll.types import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

Report = Callable[[Progress], None]


@contextmanager
def progress_shown() -> Iterator[Report]:
    """Give a function that shows each report it is called with; nothing is loaded before the first one."""
    shown = _Bar() if sys.stderr.isatty() else _Lines()
    try:
        yield shown.report
    finally:
        shown.close()


class _Lines:
    """A line whenever the step changes, and at every quarter of a step whose end is known."""

    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None

    def report(self, progress: Progress) -> None:
        quarter = int(4 * progress.done / progress.total) if progress.total else 0
        if self._last == (progress.step, quarter):
            return
        self._last = (progress.step, quarter)
        share = f" {25 * quarter} %" if progress.total and quarter else ""
        note(f"{plain(progress.step)}{share}")

    def close(self) -> None:
        """Lines need no end."""


class _Bar:
    """One moving bar, gone when the work is done."""

    def __init__(self) -> None:
        self._bars: Bars | None = None
        self._task: TaskID | None = None

    def report(self, progress: Progress) -> None:
        if self._bars is None or self._task is None:
            self._bars, self._task = _new_bars()
        step = plain(progress.step).replace("[", r"\[")
        self._bars.update(self._task, description=step, completed=progress.done, total=progress.total)

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop()


def _new_bars() -> tuple[Bars, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    bars = Bars(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bars.start()
    return bars, bars.add_task("", total=None)
