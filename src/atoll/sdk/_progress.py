"""A line about the progress of a first create, on standard error of a terminal."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, Literal, TextIO, TypeVar

from atoll.types import Progress
from atoll.types.internal import check_choice

_T = TypeVar("_T")
OnProgress = Callable[[Progress], Any] | Literal[False] | None
_SETTING = "ATOLL_PROGRESS"
# What is over sooner needs no line.
_QUIET_S = 0.4
_CLEAR = "\r\x1b[K"


class Headings:
    """Picks out the headings of a long operation: its reports may each have the same one."""

    def __init__(self) -> None:
        self._last = ""

    def new(self, progress: Progress) -> str:
        """Return the heading of a report; empty if it has none, or that of an earlier report."""
        if not progress.heading or progress.heading == self._last:
            return ""
        self._last = progress.heading
        return progress.heading


class ProgressLine:
    """One line that is rewritten at each report and removed at the end. A heading is a line above it, and stays.

    Args:
        stream: The terminal.
        columns: How wide it is.
        quiet_s: For how long from now reports show nothing.
    """

    def __init__(self, stream: TextIO, columns: int, quiet_s: float) -> None:
        self._stream = stream
        self._columns = columns
        self._from_s = time.monotonic() + quiet_s
        self._last = ""
        self._headings = Headings()

    def report(self, progress: Progress) -> None:
        """Show how far it is."""
        if time.monotonic() < self._from_s:
            return
        if heading := self._headings.new(progress):
            self._write(f"{_CLEAR}atoll: {_printable(heading)}\n")
        share = progress.whole
        if share is None and progress.total:
            share = progress.done / progress.total
        percent = "" if share is None else f" {100 * max(0.0, min(share, 1.0)):.0f} %"
        step = _printable(progress.step)
        text = f"atoll: {step[: max(0, self._columns - len(percent) - 8)]}{percent}"
        if text != self._last:
            self._last = text
            self._write(f"{_CLEAR}{text}")

    def close(self) -> None:
        """Remove the line. Idempotent."""
        if self._last:
            self._last = ""
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # nobody looks any more
            self._from_s = float("inf")


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


class Reports:
    """Takes the reports of a call to whoever wants them.

    Args:
        line: A line that shows them.
        told: A function that is called with each.

    Attributes:
        report: What to call with each report; None if nobody wants any.
    """

    def __init__(self, line: ProgressLine | None, told: Callable[[Progress], Any] | None) -> None:
        self._line = line
        self.report = told if line is None else line.report

    def before(self, result: _T) -> _T:
        """Remove the line, and return the call's result."""
        self.close()
        return result

    def close(self) -> None:
        """Remove the line. Idempotent."""
        if self._line is not None:
            self._line.close()


def line_for(on_progress: OnProgress) -> Reports:
    """Return what takes reports: the caller's function, or a line if standard error is a terminal.

    Raises:
        InvalidSpecError: The setting is not valid.
    """
    setting = os.environ.get(_SETTING, "auto")
    check_choice(_SETTING, setting, ("auto", "off"))
    if on_progress is not None or setting == "off" or not _is_terminal(sys.stderr):
        return Reports(None, on_progress or None)
    return Reports(ProgressLine(sys.stderr, shutil.get_terminal_size().columns, _QUIET_S), None)


def _is_terminal(stream: TextIO | None) -> bool:
    if stream is None or os.environ.get("TERM") == "dumb":
        return False
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False
