"""Connects this process's own terminal to a terminal in a sandbox, with raw bytes and resizing."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from atoll.cli.detach_keys import DetachKeys
from atoll.cli.program_options import code_of, stdin_is_input
from atoll.cli.reattach import reattach_hint
from atoll.cli.screen import Screen
from atoll.errors import AtollError, ProcessNotFoundError, UnsupportedError
from atoll.types import TerminalSize

if TYPE_CHECKING:
    from atoll import Sandbox, Terminal
    from atoll.cli.program_options import ProgramOptions

CHUNK_BYTES = 65536
_AGAIN_S = 0.5
# How long to hold back a key that may begin the detach keys, while waiting for the next one.
_HELD_KEY_S = 0.5
_OTHER_SIZE_S = 0.15


def need_terminals(otherwise: str) -> None:
    """Refuse a command that needs terminals of Unix, on Windows.

    Raises:
        UnsupportedError: This is Windows. ``otherwise`` says what works there.
    """
    if find_spec("termios") is None:
        raise UnsupportedError("terminals need macOS or Linux; on Windows, this needs WSL", hint=otherwise)


def session(sandbox: Sandbox, options: ProgramOptions) -> int:
    """Run a program on a terminal until it ends and return its exit code."""
    keywords = options.keywords()
    keywords["env"] = {"TERM": os.environ.get("TERM", "xterm-256color"), **keywords["env"]}
    with sandbox.processes.pty(options.argv or None, size=_size(), **keywords) as terminal:
        with reattach_hint(sandbox, terminal.pid), _raw_mode(), _screen() as screen:
            with _resizes(terminal), _typing(terminal):
                for data in terminal:
                    screen.write(data)
        return code_of(terminal.wait())


def attached(sandbox: Sandbox, pid: int, *, keys: DetachKeys, watch_only: bool) -> int | None:
    """Show the terminal of a running program and return its exit code, or None after the detach keys.

    Args:
        keys: The keys that detach, if our standard input is a terminal.
        watch_only: Send no input and do not change the terminal's size.
    """
    types = os.isatty(0) and not watch_only
    if types or (stdin_is_input() and not watch_only):
        need_terminals("`atoll attach --no-stdin` shows its output, without keys")
    with sandbox.processes.attach_terminal(pid, size=_other_size() if types else None) as terminal:
        with reattach_hint(sandbox, pid), ExitStack() as held:
            if types:
                held.enter_context(_raw_mode())
            screen = held.enter_context(_screen())
            left = _show_kept(terminal, screen)
            if types:
                held.enter_context(_resizes(terminal))
                # before any key is sent, because a program may answer a key by asking for the size
                time.sleep(_OTHER_SIZE_S)
                # if the program has ended, its last output must still be shown
                with suppress(ProcessNotFoundError):
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
    """Show the earlier output at once, and return the new output that came with its last piece."""
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
    """Pass every key on unchanged, Ctrl-C too. The previous terminal settings are restored afterwards."""
    if not os.isatty(0):
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(0)
    # Keys typed before now must not be lost.
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
            # The program may have ended; then nobody needs the size.
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
    """Return a size that is not ours. Programs redraw the whole screen when the size changes."""
    size = _size()
    return TerminalSize(cols=size.cols, rows=size.rows - 1 if size.rows > 1 else 2)


@contextmanager
def _keys(terminal: Terminal, keys: DetachKeys) -> Iterator[None]:
    """Send the typed input until the program ends or the detach keys come. After the keys, stop receiving."""
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
    """Run a function in a thread, and signal its end by closing a pipe."""
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
    """Send the typed input until the program ends. At the end of our input, repeat Ctrl-D until then."""
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
            # A terminal has no end of input. Ctrl-D marks it, but a program that sets up its terminal later
            # loses it.
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
