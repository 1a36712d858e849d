"""Shows progress of long tasks on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from atoll.cli.output import note
from atoll.cli.text import plain, size
from atoll.types import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

Report = Callable[[Progress], None]


@contextmanager
def progress_shown() -> Iterator[Report]:
    """Give a function that shows each report it is called with. Nothing is loaded before the first report.

    With ``ATOLL_PROGRESS=off`` it shows nothing.
    """
    if os.environ.get("ATOLL_PROGRESS", "auto") == "off":
        yield lambda _: None
        return
    shown = _Bar() if sys.stderr.isatty() else _Lines()
    try:
        yield shown.report
    finally:
        shown.close()


class _Way:
    """The progress of a whole task, and its heading. A share of the whole never goes back."""

    def __init__(self) -> None:
        self._whole: float | None = None
        self._heading = ""

    def heading(self, progress: Progress) -> str:
        """Return the heading of a report; empty if it has none, or that of an earlier report."""
        if not progress.heading or progress.heading == self._heading:
            return ""
        self._heading = progress.heading
        return progress.heading

    def share(self, progress: Progress) -> float | None:
        """Return the part that is done, from 0 to 1, or None if unknown."""
        if progress.whole is not None:
            self._whole = max(self._whole or 0.0, min(progress.whole, 1.0))
        if self._whole is not None:
            return self._whole
        return min(progress.done / progress.total, 1.0) if progress.total else None


class _Lines:
    """Prints the heading, and a line whenever the step changes, and at every quarter if the length is known."""

    def __init__(self) -> None:
        self._way = _Way()
        self._last: tuple[str, int] | None = None

    def report(self, progress: Progress) -> None:
        if heading := self._way.heading(progress):
            note(plain(heading))
        quarter = int(4 * (self._way.share(progress) or 0.0))
        if self._last == (progress.step, quarter):
            return
        self._last = (progress.step, quarter)
        share = f" {25 * quarter} %" if quarter else ""
        note(f"{plain(progress.step)}{share}")

    def close(self) -> None:
        """Do nothing: lines need no end."""


class _Bar:
    """Draws one moving bar, which disappears when the task is done. A heading above it stays."""

    def __init__(self) -> None:
        self._way = _Way()
        self._bars: Bars | None = None
        self._task: TaskID | None = None

    def report(self, progress: Progress) -> None:
        if self._bars is None or self._task is None:
            self._bars, self._task = _new_bars()
        if heading := self._way.heading(progress):
            self._bars.console.print(plain(heading), markup=False, highlight=False)
        share = self._way.share(progress)
        self._bars.update(
            self._task,
            description=plain(progress.step).replace("[", r"\["),
            completed=share or 0.0,
            total=None if share is None else 1.0,
            percent="" if share is None else f"{100 * share:.0f} %",
            detail=_detail(progress),
        )

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop()


def _detail(progress: Progress) -> str:
    """Describe how far the step itself has come."""
    if not progress.total:
        return ""
    if progress.unit in ("bytes", "B"):
        return f"{size(progress.done)} of {size(progress.total)}"
    return f"{progress.done:.0f} of {progress.total:.0f} {plain(progress.unit)}"


def _new_bars() -> tuple[Bars, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    bars = Bars(
        SpinnerColumn(),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[percent]}"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.fields[detail]}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
    bars.start()
    return bars, bars.add_task("", total=None, percent="", detail="")
