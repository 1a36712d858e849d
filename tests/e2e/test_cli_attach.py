"""``atoll attach`` on a terminal, and the words by which ``shell`` and ``exec`` lead to it."""

import fcntl
import json
import os
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.command_line import LONG_S, atoll, rest, said, started, until
from tests.waiting import until as wait_until

from atoll import Sandbox, Terminal
from atoll.types import TerminalSize

LEAVE = b"\x10\x11"


@pytest.fixture
def work(home: Path) -> Iterator[Sandbox]:
    """A sandbox named work."""
    with Sandbox.create(name="work") as sandbox:
        yield sandbox


@contextmanager
def on_a_terminal(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A command line on a terminal of 100 columns and 30 rows, and our end of that."""
    ours, theirs = os.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    try:
        with started(*arguments, preexec_fn=lambda: os.login_tty(theirs)) as process:
            os.close(theirs)
            yield process, ours
    finally:
        os.close(ours)


def shell_in(sandbox: Sandbox) -> Terminal:
    """A shell on a terminal, whose client leaves it once it has a variable."""
    terminal = sandbox.processes.pty(["sh", "-i"], size=TerminalSize(cols=80, rows=24))
    terminal.send(b"X=kept; echo rea''dy\n")
    seen = b""
    while b"ready" not in seen:
        seen += terminal.receive()
    terminal.close()
    return terminal


def test_a_shell_is_gone_on_with_left_by_its_keys_and_ended_by_its_own_exit(work: Sandbox) -> None:
    terminal = shell_in(work)
    with on_a_terminal("attach", "work") as (process, ours):
        until(ours, b"ready")  # what it wrote before
        os.write(ours, b"echo $X, $(stty size)\r")
        until(ours, b"kept, 30 100")
        os.write(ours, b"sh -c 'echo run$((1 + 1))ning; exec sleep 1000'\r")
        until(ours, b"run2ning")
        os.write(ours, b"\x03")  # Ctrl-C is the program's
        os.write(ours, b"echo in''terrupted\r")
        until(ours, b"interrupted")
        os.write(ours, LEAVE)
        until(
            ours,
            f"detached from program {terminal.pid}, which keeps running: `atoll attach work {terminal.pid}`".encode(),
        )
        rest(ours)
        assert process.wait(LONG_S) == 0
    with on_a_terminal("attach", "work", str(terminal.pid)) as (process, ours):
        os.write(ours, b"exit 7\r")
        rest(ours)
        assert process.wait(LONG_S) == 7
    assert work.processes.list() == []
    other = shell_in(work)
    fed = atoll("attach", "work", stdin=b"echo fed-$X; exit 9\n")
    assert fed.returncode == 9 and b"fed-kept" in fed.stdout, "a pipe's end is no Ctrl-D"
    assert atoll("attach", "work", str(other.pid)).returncode == 9
    again = atoll("attach", "work", str(terminal.pid))
    assert again.returncode == 7 and b"kept, 30 100" in again.stdout


def test_a_sleeping_sandbox_is_woken_and_a_shell_that_sleep_has_cut_says_how(work: Sandbox) -> None:
    with on_a_terminal("shell", "work") as (process, ours):
        until(ours, b"$ ")
        os.write(ours, b"Y=still; echo u''p\r")
        until(ours, b"up")
        (program,) = work.processes.list()
        work.suspend()
        told = until(ours, b"attaches again").replace(b"\r\n", b"")
        assert f"`atoll attach work {program.pid}` wakes it".encode() in told
        rest(ours)
        assert process.wait(LONG_S) == 125
    with on_a_terminal("attach", "work", str(program.pid)) as (process, ours):
        os.write(ours, b"echo $Y-here\r")
        shown = until(ours, b"still-here").partition(b"still-here")[2]
        if b"$ " not in shown:  # before its prompt, the shell would miss the end of its input
            until(ours, b"$ ")
        os.write(ours, b"\x04")
        rest(ours)
        assert process.wait(LONG_S) == 0
    with on_a_terminal("exec", "work", "sh", "-c", "echo u''p; exec sleep 1000") as (process, ours):
        until(ours, b"up")  # then the client knows the program's number too
        programs = work.processes.list()
        work.suspend()
        until(ours, f"`atoll attach work {programs[0].pid}`".encode())
    with on_a_terminal("shell", "work") as (process, ours):
        until(ours, b"$ ")
        work.suspend(memory=False)
        assert b"atoll attach" not in until(ours, b"have ended")


def test_without_a_pid_the_programs_are_listed_unless_one_alone_has_a_terminal(work: Sandbox) -> None:
    none = atoll("attach", "work")
    assert none.returncode == 125 and b"`atoll shell work` opens a terminal" in none.stderr
    counting = work.processes.start("while read line; do echo got $line; done; exit 5", stdin=True)
    listed = atoll("attach", "work")
    assert listed.returncode == 125 and b"name one by its pid: atoll attach work PID" in listed.stderr
    row = listed.stdout.decode().splitlines()[1].split()
    assert row[:2] == [str(counting.pid), "-"] and "while read line" in listed.stdout.decode()
    first, second = shell_in(work), shell_in(work)
    both = atoll("attach", "work")
    assert both.returncode == 125 and b"2 programs have a terminal in sandbox work" in both.stderr
    assert len(said("attach", "--list", "work").splitlines()) == 4 == len(both.stdout.splitlines())
    told = json.loads(said("attach", "--json", "work"))
    assert {(one["pid"], one["pty"]) for one in told} == {
        (counting.pid, False),
        (first.pid, True),
        (second.pid, True),
    }
    wrong = atoll("attach", "work", "4242")
    assert wrong.returncode == 125 and b"`atoll attach --list work`" in wrong.stderr


def test_a_program_without_a_terminal_gets_input_and_ctrl_c_leaves_it_alone(work: Sandbox) -> None:
    program = work.processes.start("echo up; while read line; do echo got $line; done; exit 5", stdin=True)
    with on_a_terminal("attach", "work", str(program.pid)) as (process, ours):
        until(ours, b"up")
        os.write(ours, b"one\n")
        until(ours, b"got one")
        os.write(ours, b"\x03")
        until(ours, b"attaches to it again")
        assert process.wait(LONG_S) == 130
    with started("attach", "--no-stdin", "work", str(program.pid), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        until(process.stdout.fileno(), b"got one")
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG_S) == 128 + signal.SIGTERM
    done = atoll("attach", "work", str(program.pid), stdin=b"two\n")
    assert (done.returncode, done.stdout) == (5, b"up\ngot one\ngot two\n")


def test_a_service_is_watched_by_its_name_and_ctrl_c_leaves_it_running(work: Sandbox) -> None:
    work.services.add("web", "echo up; exec sleep 1000")
    with on_a_terminal("attach", "work", "web") as (process, ours):
        until(ours, b"up")
        work.services.restart("web")
        until(ours, b"up")
        os.write(ours, b"\x03")
        until(ours, b"`atoll attach work web` attaches to it again")
        assert process.wait(LONG_S) == 130
    assert work.services.get("web").state == "running"
    work.services.add("once", "echo done; exit 3", restart="never")
    wait_until(lambda: work.services.get("once").state == "ended")
    done = atoll("attach", "work", "once")
    assert (done.returncode, done.stdout) == (3, b"done\n")
    assert b"`atoll service start work once` starts it" in done.stderr
    unknown = atoll("attach", "work", "gone")
    assert unknown.returncode == 125 and b"`atoll service ls work`" in unknown.stderr


def test_a_program_that_draws_its_screen_draws_it_again_and_the_terminal_is_left_as_it_was(
    work: Sandbox,
) -> None:
    drawing = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGWINCH, lambda *_: print('drawn again', flush=True))\n"
        "print('\\x1b[?1049h\\x1b[cscreen', flush=True)\n"
        "while True: time.sleep(1000)\n"
    )
    terminal = work.processes.pty(["python3", "-c", drawing], size=TerminalSize(cols=100, rows=30))
    while b"screen" not in terminal.receive():
        pass
    terminal.close()
    with on_a_terminal("attach", "--detach-keys", "ctrl-]", "work") as (process, ours):
        seen = until(ours, b"drawn again")
        assert b"\x1b[?1049h" in seen and b"\x1b[c" not in seen
        os.write(ours, b"\x1d")
        assert b"\x1b[?1049l" in until(ours, b"attaches to it again")
        assert process.wait(LONG_S) == 0
    assert [one.pid for one in work.processes.list()] == [terminal.pid]
