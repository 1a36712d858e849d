"""A terminal in a sandbox with this process's own terminal at its end: raw bytes and resizing."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from atoll.cli.programs import code_of
from atoll.errors import AtollError
from atoll.types import TerminalSize

if TYPE_CHECKING:
    from atoll import Sandbox, Terminal
    from atoll.cli.programs import ProgramOptions

CHUNK_BYTES = 65536
_AGAIN_S = 0.5


def session(sandbox: Sandbox, options: ProgramOptions) -> int:
    """Run a program on a terminal until it ends and return its exit code."""
    keywords = options.keywords()
    keywords["env"] = {"TERM": os.environ.get("TERM", "xterm-256color"), **keywords["env"]}
    with sandbox.pty(options.argv or None, size=_size(), **keywords) as terminal:
        with _raw_mode(), _resizes(terminal), _typing(terminal):
            for data in terminal:
                _write(data)
        return code_of(terminal.wait())


@contextmanager
def _raw_mode() -> Iterator[None]:
    """Pass every key on as it is, Ctrl-C too; what was set before is set again afterwards."""
    if not os.isatty(0):
        yield
        return
    before = termios.tcgetattr(0)
    # What was typed before now is not thrown away.
    tty.setraw(0, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


@contextmanager
def _resizes(terminal: Terminal) -> Iterator[None]:
    """Tell the terminal inside whenever ours changes its size."""
    changed = threading.Event()
    done = threading.Event()

    def follow() -> None:
        while changed.wait():
            changed.clear()
            if done.is_set():
                return
            # The program may have ended; then its size matters to nobody.
            with suppress(AtollError, OSError):
                terminal.resize(_size())

    before = signal.signal(signal.SIGWINCH, lambda *_: changed.set())
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
        done.set()
        changed.set()


@contextmanager
def _typing(terminal: Terminal) -> Iterator[None]:
    """Send what is typed, until the program ends; at the end of our input, its end for as long."""
    end_read, end_write = os.pipe()

    def follow() -> None:
        with suppress(AtollError, OSError):  # the program ended while somebody typed
            while True:
                ready, _, _ = select.select([0, end_read], [], [])
                if end_read in ready:
                    return
                data = os.read(0, CHUNK_BYTES)
                if not data:
                    break
                terminal.send(data)
            # A terminal has no end of input: Ctrl-D says it, and is lost on a program that sets up its terminal later.
            terminal.send(b"\x04")
            while not select.select([end_read], [], [], _AGAIN_S)[0]:
                terminal.send(b"\x04")

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(end_write)
        thread.join(timeout=1)
        if not thread.is_alive():
            os.close(end_read)


def _size() -> TerminalSize:
    for descriptor in (1, 0, 2):
        with suppress(OSError):  # not a terminal
            size = os.get_terminal_size(descriptor)
            if size.columns and size.lines:
                return TerminalSize(cols=size.columns, rows=size.lines)
    return TerminalSize()


def _write(data: bytes) -> None:
    sys.stdout.flush()
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]
