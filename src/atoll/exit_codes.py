"""The exit codes of ``atoll``, ``atoll serve`` and ``atoll mcp``, and what each means.

Where a command runs a program inside, every other code is the program's own.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """A code that atoll itself chooses. The page of errors in the reference has the same table."""

    DONE = 0
    """It is done. For a check: all is well."""

    ANSWER_IS_NO = 1
    """The command did its work, and not all is well: something is damaged, refused, not found, or still awake."""

    FAILED = 125
    """Atoll itself failed; standard error says why."""

    INTERRUPTED = 130
    """Ctrl-C ended it: 128 and SIGINT."""

    READER_LEFT = 141
    """The reader of its output has gone: 128 and SIGPIPE, as of a program that the signal kills."""


def code_of_answer(yes: bool) -> ExitCode:
    """Return the code of a command that checks something, or does it for all it finds."""
    return ExitCode.DONE if yes else ExitCode.ANSWER_IS_NO


def code_of_signal(number: int) -> int:
    """Return the code of a process that a signal ends, as shells count."""
    return 128 + number
