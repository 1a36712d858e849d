"""The published E2B SDK opens terminals through the guest agent."""

import asyncio

import pytest
from e2b import AsyncSandbox, CommandExitException, Sandbox
from e2b.sandbox.commands.command_handle import PtySize

BOUND_S = 60
# Files that are run beside this one may have the port for as long as their tests take.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def sandbox(e2b_port: int, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    assert e2b_port == 49983, "the SDK's debug mode knows only this port"
    monkeypatch.setenv("E2B_DEBUG", "true")
    return Sandbox.create()


def test_a_terminal_has_the_asked_size_and_runs_a_shell(sandbox: Sandbox) -> None:
    terminal = sandbox.pty.create(PtySize(cols=97, rows=31), envs={"WORD": "tide"}, timeout=BOUND_S)
    sandbox.pty.send_stdin(terminal.pid, b"stty size; tty; echo $WORD-$((40+2)); exit 3\n")
    text = bytearray()
    with pytest.raises(CommandExitException) as caught:
        terminal.wait(on_pty=text.extend)
    assert caught.value.exit_code == 3
    assert b"31 97" in text
    assert b"/dev/pts/" in text
    assert b"tide-42" in text


def test_a_terminal_is_resized_while_it_runs(sandbox: Sandbox) -> None:
    terminal = sandbox.pty.create(PtySize(cols=80, rows=24), timeout=BOUND_S)
    sandbox.pty.resize(terminal.pid, PtySize(cols=123, rows=45))
    sandbox.pty.send_stdin(terminal.pid, b"stty size; exit\n")
    text = bytearray()
    terminal.wait(on_pty=text.extend)
    assert b"45 123" in text


def test_a_terminal_outlives_its_client_and_can_be_killed(sandbox: Sandbox) -> None:
    terminal = sandbox.pty.create(PtySize(cols=80, rows=24), timeout=BOUND_S)
    terminal.disconnect()
    again = sandbox.pty.connect(terminal.pid, timeout=BOUND_S)
    assert sandbox.pty.kill(terminal.pid)
    with pytest.raises(CommandExitException):
        again.wait()
    assert not sandbox.pty.kill(terminal.pid)


def test_an_async_terminal_answers_what_is_typed(sandbox: Sandbox) -> None:
    async def main() -> bytes:
        box = await AsyncSandbox.create()
        text = bytearray()
        terminal = await box.pty.create(PtySize(cols=80, rows=24), on_data=text.extend, timeout=BOUND_S)
        await box.pty.send_stdin(terminal.pid, b"echo $((6*7))-done; exit\n")
        await terminal.wait()
        return bytes(text)

    assert b"42-done" in asyncio.run(main())
