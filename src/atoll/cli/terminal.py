"""A terminal in a sandbox with this process's own terminal at its end: raw bytes and resizing."""

from __future__ import annotations

import os
import select
import signal
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from atoll.cli.attaching import way_back
from atoll.cli.detaching import DetachKeys
from atoll.cli.program_options import code_of, stdin_is_input
from atoll.cli.screen import Screen
from atoll.errors import AtollError, ProcessNotFoundError
from atoll.types import TerminalSize

if TYPE_CHECKING:
    from atoll import Sandbox, Terminal
    from atoll.cli.program_options import ProgramOptions

CHUNK_BYTES = 65536
_AGAIN_S = 0.5
# How long a key that may begin those that leave waits for the next one.
_HELD_KEY_S = 0.5
_OTHER_SIZE_S = 0.15


def session(sandbox: Sandbox, options: ProgramOptions) -> int:
    """Run a program on a terminal until it ends and return its exit code."""
    keywords = options.keywords()
    keywords["env"] = {"TERM": os.environ.get("TERM", "xterm-256color"), **keywords["env"]}
    with sandbox.pty(options.argv or None, size=_size(), **keywords) as terminal:
        with way_back(sandbox, terminal.pid), _raw_mode(), _screen() as screen:
            with _resizes(terminal), _typing(terminal):
                for data in terminal:
                    screen.write(data)
        return code_of(terminal.wait())


def attached(sandbox: Sandbox, pid: int, *, keys: DetachKeys, watch_only: bool) -> int | None:
    """Show the terminal of a program that runs and return its exit code; None when the keys have left it.

    Args:
        keys: What leaves it, where our standard input is a terminal.
        watch_only: Type nothing and leave its size alone.
    """
    types = os.isatty(0) and not watch_only
    with sandbox.attach_terminal(pid, size=_other_size() if types else None) as terminal:
        with way_back(sandbox, pid), ExitStack() as held:
            if types:
                held.enter_context(_raw_mode())
            screen = held.enter_context(_screen())
            left = _show_kept(terminal, screen)
            if types:
                held.enter_context(_resizes(terminal))
                # before any key: what is typed now may ask for the size
                time.sleep(_OTHER_SIZE_S)
                with suppress(ProcessNotFoundError):  # what it said until it ended is still to be shown
                    terminal.resize(_size())
                held.enter_context(_keys(terminal, keys))
            elif stdin_is_input() and not watch_only:
                held.enter_context(_keys(terminal, DetachKeys(b"")))
            if left:
                screen.write(left)
            try:
                for data in terminal:
                    screen.write(data)
            except AtollError:
                if not keys.found:
                    raise
                screen.leave()
                screen.new_line()
                return None
        return code_of(terminal.wait())


def _show_kept(terminal: Terminal, screen: Screen) -> bytes:
    """Show what was written before at once, and return what came with its last piece."""
    kept = b""
    while len(kept) < terminal.kept_bytes and (data := terminal.receive()):
        kept += data
    screen.show_again(kept[: terminal.kept_bytes])
    return kept[terminal.kept_bytes :]


@contextmanager
def _screen() -> Iterator[Screen]:
    screen = Screen()
    try:
        yield screen
    except BaseException:
        screen.leave()
        screen.new_line()
        raise
    screen.leave()


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


def _other_size() -> TerminalSize:
    """A size that is not ours: programs draw all of their screen when it changes."""
    size = _size()
    return TerminalSize(cols=size.cols, rows=size.rows - 1 if size.rows > 1 else 2)


@contextmanager
def _keys(terminal: Terminal, keys: DetachKeys) -> Iterator[None]:
    """Send what is typed until the program ends, or the keys were pressed: then nothing more is received."""
    end_read, end_write = os.pipe()

    def follow() -> None:
        with suppress(AtollError, OSError):  # the program ended while somebody typed
            while not keys.found:
                ready, _, _ = select.select([0, end_read], [], [], _HELD_KEY_S if keys.pending else None)
                if end_read in ready:
                    return
                data = os.read(0, CHUNK_BYTES) if ready else b""
                if ready and not data:
                    return
                if passed := keys.feed(data) if data else keys.give_up():
                    terminal.send(passed)
            terminal.abort()

    with _in_thread(follow, end_read, end_write):
        yield


@contextmanager
def _in_thread(work: Callable[[], None], end_read: int, end_write: int) -> Iterator[None]:
    """Work beside, until the end of a pipe says that it is over."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(end_write)
        thread.join(timeout=1)
        if not thread.is_alive():
            os.close(end_read)


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

    with _in_thread(follow, end_read, end_write):
        yield


def _size() -> TerminalSize:
    for descriptor in (1, 0, 2):
        with suppress(OSError):  # not a terminal
            size = os.get_terminal_size(descriptor)
            if size.columns and size.lines:
                return TerminalSize(cols=size.columns, rows=size.lines)
    return TerminalSize()
