"""Entry of the ``atoll`` command and of ``python -m atoll.cli``."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import click

from atoll.cli.atoll import atoll
from atoll.cli.failures import FAILED, INTERRUPTED, failure_line


def main() -> NoReturn:
    """Run the command line and exit: a program's own code, 125 when atoll failed, 130 after Ctrl-C."""
    _open_standard_streams()
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGHUP, _terminate)
    code = run(sys.argv[1:])
    try:
        if sys.stdout is not None:  # it may have been closed before we began
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader left. Python would complain once more when it closes the stream at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _open_standard_streams() -> None:
    """Fill the places of closed standard streams: a socket that came to lie there would get the output."""
    fd = os.open(os.devnull, os.O_RDWR)
    while fd <= 2:
        os.set_inheritable(fd, True)
        fd = os.open(os.devnull, os.O_RDWR)
    os.close(fd)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code; what went wrong is one line on standard error."""
    try:
        code = atoll.main(arguments, prog_name="atoll", standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except Exception as error:  # the last place that can turn a fault into a line
        click.echo(failure_line(error), err=True)
        return FAILED
    return code if isinstance(code, int) else 0


def _terminate(number: int, _frame: FrameType | None) -> NoReturn:
    """Leave through every ``with`` and ``finally``, so that a sandbox of ``atoll run`` is killed as well."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
