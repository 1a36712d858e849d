from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import until

from atoll import Sandbox, Terminal
from atoll.errors import ProcessNotFoundError, StateError
from atoll.types import TerminalSize


@pytest.fixture(scope="module")
def sandbox(module_home: Path) -> Iterator[Sandbox]:
    with Sandbox.create() as sandbox:
        yield sandbox


def test_a_background_program_is_found_and_followed_by_another_client(sandbox: Sandbox) -> None:
    process = sandbox.processes.start("echo first; read line; echo got $line; exit 7", stdin=True)
    with Sandbox.connect(sandbox.id) as other:
        rows = {row.pid: row for row in other.processes.list()}
        assert rows[process.pid].user == "user"
        assert rows[process.pid].cwd == "/home/user"
        twin = other.processes.attach(process.pid)
        twin.write_stdin("hello\n")
        result = twin.wait(timeout_s=120)
    assert (result.stdout, result.exit_code) == ("first\ngot hello\n", 7)
    assert process.wait(timeout_s=120).exit_code == 7
    assert process.pid not in [row.pid for row in sandbox.processes.list()]


def test_output_is_iterated_over_as_it_comes(sandbox: Sandbox) -> None:
    with sandbox.processes.start("for i in 1 2 3; do echo $i; done; echo no >&2", stream=True) as process:
        outputs = list(process)
        assert process.wait().exit_code == 0
    assert "".join(output.text for output in outputs if output.stream == "stdout") == "1\n2\n3\n"
    assert "".join(output.text for output in outputs if output.stream == "stderr") == "no\n"


def test_a_program_reads_the_end_when_its_input_is_closed(sandbox: Sandbox) -> None:
    process = sandbox.processes.start(["sort"], stdin=True)
    process.write_stdin("b\n")
    process.write_stdin(["a", "\n"])
    process.close_stdin()
    assert process.wait(timeout_s=120).stdout == "a\nb\n"


def test_signals_arrive_and_their_number_is_in_the_exit_code(sandbox: Sandbox) -> None:
    polite = sandbox.processes.start(
        "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.1; done", stream=True
    )
    with polite:
        assert next(iter(polite)).text == "ready\n"
        polite.send_signal(signal.SIGTERM)
        assert polite.wait(timeout_s=120).exit_code == 5
    rude = sandbox.processes.start(["sleep", "1000"])
    rude.kill()
    assert rude.wait(timeout_s=120).exit_code == 137
    rude.kill()
    with pytest.raises(ProcessNotFoundError):
        rude.send_signal(signal.SIGTERM)


def test_a_program_that_nobody_reads_does_not_stall(sandbox: Sandbox) -> None:
    process = sandbox.processes.start("head -c 5000000 /dev/zero; echo >&2 done; touch ~/unread")
    until(lambda: sandbox.files.exists("unread"))
    result = process.wait(timeout_s=120)
    assert result.exit_code == 0
    assert 0 < len(result.stdout_bytes) < 5000000
    assert result.truncated
    with sandbox.processes.start("head -c 5000000 /dev/zero", stream=True) as streamed:
        whole = streamed.wait(timeout_s=120)
    assert (len(whole.stdout_bytes), whole.truncated) == (5000000, False)


def test_a_terminal_has_a_size_and_passes_raw_bytes(sandbox: Sandbox) -> None:
    with sandbox.processes.pty(size=TerminalSize(101, 31)) as terminal:
        terminal.send(b"stty size; tty; echo A$((1+1))B\r")
        seen = read_until(terminal, b"A2B")
        assert b"31 101" in seen
        assert b"/dev/pts/" in seen
        terminal.resize(TerminalSize(77, 22))
        # A line editor that was just asking puts the old size back; the agent sets the new one again soon after.
        until_new = b"until [ \"$(stty size)\" = '22 77' ]; do sleep 0.1; done; stty size; echo C$((1+1))D\r"
        terminal.send(until_new)
        assert b"\r22 77\r\n" in read_until(terminal, b"C2D")
        terminal.send(b"sh -c 'echo E$((1+1))F; exec sleep 1000'\r")
        read_until(terminal, b"E2F")
        terminal.send(b"\x03")
        terminal.send(b"exit 9\r")
        assert terminal.wait().exit_code == 9


def test_a_sandbox_sleeps_on_when_its_terminal_is_left_and_a_handle_finds_its_program_after_waking(
    sandbox: Sandbox,
) -> None:
    process = sandbox.processes.start(
        "echo begun; until [ -e woken ]; do sleep 0.1; done; exit 7", stream=True
    )
    assert next(iter(process)).text == "begun\n"
    with sandbox.processes.pty() as terminal:
        terminal.send(b"echo A$((1+1))B\r")
        read_until(terminal, b"A2B")
        sandbox.suspend()
    assert sandbox.info().state == "suspended"
    with pytest.raises(StateError, match="was suspended by another client"):
        process.wait()
    assert sandbox.info().state == "suspended"
    sandbox.files.write("woken", "")
    result = process.wait(timeout_s=120)
    assert (result.stdout, result.exit_code) == ("begun\n", 7)
    assert terminal.pid in [row.pid for row in sandbox.processes.list()]
    sandbox.processes.attach(terminal.pid).kill()


def read_until(terminal: Terminal, wanted: bytes) -> bytes:
    seen = b""
    for data in terminal:
        seen += data
        if wanted in seen:
            return seen
    raise AssertionError(f"the terminal ended at {seen!r}")
