"""The entry point of the ``atoll`` command and of ``python -m atoll.cli``."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import click

from atoll.cli.atoll import atoll
from atoll.cli.failures import failure_line
from atoll.exit_codes import ExitCode, code_of_signal


def main() -> NoReturn:
    """Run the command line and exit with the program's own code, 125 if atoll failed, or 130 after Ctrl-C."""
    _open_standard_streams()
    signal.signal(signal.SIGTERM, _terminate)
    if hasattr(signal, "SIGHUP"):  # Windows has none
        signal.signal(signal.SIGHUP, _terminate)
    code = run(sys.argv[1:])
    try:
        if sys.stdout is not None:  # it may have been closed before this process started
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone. Without this, Python would complain again when it closes the stream at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _open_standard_streams() -> None:
    """Open /dev/null for closed standard streams.

    Otherwise a socket could get such a number and receive the output.
    """
    fd = os.open(os.devnull, os.O_RDWR)
    while fd <= 2:
        os.set_inheritable(fd, True)
        fd = os.open(os.devnull, os.O_RDWR)
    os.close(fd)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. A failure is one line on standard error."""
    try:
        code = atoll.main(arguments, prog_name="atoll", standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        return ExitCode.INTERRUPTED
    except Exception as error:  # the last place where an internal error can become one line
        click.echo(failure_line(error), err=True)
        return ExitCode.FAILED
    return code if isinstance(code, int) else ExitCode.DONE


def _terminate(number: int, _frame: FrameType | None) -> NoReturn:
    """Leave through every ``with`` and ``finally``, so that the sandbox of ``atoll run`` is killed too."""
    raise SystemExit(code_of_signal(number))


if __name__ == "__main__":
    main()
