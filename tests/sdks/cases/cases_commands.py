"""Commands, input and terminals through the server."""

from __future__ import annotations

import asyncio
from typing import Any

import e2b
import pytest

from conftest import BOUND_S, Face

pytestmark = pytest.mark.anyio


async def test_a_command_gives_output_and_exit_code(face: Face, sandbox: Any) -> None:
    ran = await face.do(sandbox.commands.run("echo out; echo err >&2"))
    assert (ran.stdout, ran.stderr, ran.exit_code) == ("out\n", "err\n", 0)
    failed = await face.raises(e2b.CommandExitException, lambda: sandbox.commands.run("echo so far; exit 7"))
    assert (failed.exit_code, failed.stdout) == (7, "so far\n")


async def test_user_directory_environment_and_callbacks(face: Face, sandbox: Any) -> None:
    seen: list[str] = []
    ran = await face.do(
        sandbox.commands.run(
            'echo "$(whoami) $PWD $WORD"; echo err >&2',
            user="root",
            cwd="/tmp",
            envs={"WORD": "größe"},
            on_stdout=lambda text: seen.append(text),
            on_stderr=lambda text: seen.append(text),
        )
    )
    assert ran.stdout == "root /tmp größe\n"
    assert sorted(seen) == ["err\n", "root /tmp größe\n"]


async def test_background_commands_take_input_are_listed_and_joined(face: Face, sandbox: Any) -> None:
    cat = await face.do(sandbox.commands.run("cat", background=True, stdin=True))
    await face.do(sandbox.commands.send_stdin(cat.pid, "one\n"))
    await face.do(cat.send_stdin("two\n"))
    if not face.is_old:
        await streamed(face, sandbox.commands, cat.pid, ["three\n", "four\n"])
    await face.do(cat.close_stdin())
    ended = await face.do(cat.wait())
    assert ended.stdout == ("one\ntwo\n" if face.is_old else "one\ntwo\nthree\nfour\n")
    if face.is_async:
        assert (cat.stdout, cat.stderr, cat.exit_code, cat.error) == (ended.stdout, "", 0, None)
    again = await face.do(sandbox.commands.run("cat", background=True, stdin=True))
    await face.do(sandbox.commands.close_stdin(again.pid))
    assert (await face.do(again.wait())).exit_code == 0

    # a second, so that the disconnection is known inside before the line
    waits = "until [ -e /tmp/{0} ]; do sleep 0.1; done; sleep {1}; echo {0}; touch /tmp/{0}.said; "
    late = await face.do(
        sandbox.commands.run(waits.format("missed", 1) + waits.format("late", 0), background=True)
    )
    await face.do(late.disconnect())
    assert late.pid in [one.pid for one in await face.do(sandbox.commands.list())]
    await face.do(sandbox.files.write("/tmp/missed", ""))
    await face.do(sandbox.commands.run("until [ -e /tmp/missed.said ]; do sleep 0.1; done"))
    joined = await face.do(sandbox.commands.connect(late.pid))
    assert joined.pid == late.pid
    await face.do(sandbox.files.write("/tmp/late", ""))
    assert (await face.do(joined.wait())).stdout == "missed\nlate\n"


async def streamed(face: Face, to: Any, pid: int, pieces: list[Any]) -> None:
    """Send input in one stream."""
    if not face.is_async:
        to.stream_input(pid, iter(pieces))
        return
    async with await face.do(to.stream_input(pid)) as stream:
        for piece in pieces:
            await stream.send(piece)


async def test_commands_are_killed_by_handle_by_pid_and_by_time(face: Face, sandbox: Any) -> None:
    first = await face.do(sandbox.commands.run("sleep 1000", background=True))
    assert await face.do(first.kill())
    await face.raises(e2b.CommandExitException, first.wait)
    second = await face.do(sandbox.commands.run("sleep 1000", background=True))
    assert await face.do(sandbox.commands.kill(second.pid))
    await face.until(lambda: gone(face, sandbox, second.pid))
    assert not await face.do(sandbox.commands.kill(second.pid))
    await face.raises(e2b.TimeoutException, lambda: sandbox.commands.run("sleep 1000", timeout=1))


async def gone(face: Face, sandbox: Any, pid: int) -> bool:
    return pid not in [one.pid for one in await face.do(sandbox.commands.list())]


async def test_wrong_users_directories_and_pids_have_their_errors(face: Face, sandbox: Any) -> None:
    await face.raises(
        e2b.InvalidArgumentException, lambda: sandbox.commands.run("true", cwd="/no/such/place")
    )
    await face.raises(e2b.NotFoundException, lambda: sandbox.commands.connect(2_000_000_000))
    with pytest.raises((e2b.AuthenticationException, e2b.SandboxException), match="no-such-user"):
        await face.do(sandbox.commands.run("true", user="no-such-user"))


async def test_a_terminal_talks_resizes_streams_and_ends(face: Face, sandbox: Any) -> None:
    shown = bytearray()
    terminal = await face.do(opened(face, sandbox, shown))
    await face.do(sandbox.pty.resize(terminal.pid, e2b.PtySize(rows=40, cols=100)))
    await face.do(sandbox.pty.send_stdin(terminal.pid, b"stty size; echo $((6*7))th\n"))
    if not face.is_old:
        await streamed(face, sandbox.pty, terminal.pid, [b"echo str", b"eamed\n"])
    await face.do(sandbox.pty.send_stdin(terminal.pid, b"exit 3\n"))
    with pytest.raises(e2b.CommandExitException) as ended:
        if face.is_async:
            await terminal.wait()
        else:
            terminal.wait(on_pty=shown.extend)
    assert ended.value.exit_code == 3
    text = shown.decode()
    assert "40 100" in text
    assert "42th" in text
    assert face.is_old or "streamed" in text


async def opened(face: Face, sandbox: Any, shown: bytearray) -> Any:
    size = e2b.PtySize(rows=24, cols=80)
    if face.is_async:
        return await sandbox.pty.create(size, on_data=lambda data: shown.extend(data))
    return sandbox.pty.create(size)


async def test_a_terminal_is_joined_and_killed(face: Face, sandbox: Any) -> None:
    shown = bytearray()
    terminal = await opened(face, sandbox, bytearray())
    await face.do(terminal.disconnect())
    if face.is_async:
        joined = await sandbox.pty.connect(terminal.pid, on_data=lambda data: shown.extend(data))
    else:
        joined = sandbox.pty.connect(terminal.pid)
    assert joined.pid == terminal.pid
    assert await face.do(sandbox.pty.kill(terminal.pid))
    await face.raises(e2b.CommandExitException, joined.wait)


async def test_a_sandbox_killed_during_a_command_ends_it_with_an_error(face: Face, anew: Any) -> None:
    doomed = await anew()
    running = await face.do(doomed.commands.run("echo up; sleep 1000", background=True, timeout=BOUND_S))
    assert await face.do(doomed.kill())
    error = await face.raises(e2b.SandboxException, running.wait)
    assert isinstance(error, e2b.TimeoutException if face.is_old else e2b.SandboxNotRunningException)
    assert "was killed or reached its end of life" in str(error)
    assert not await face.do(doomed.is_running())


async def test_many_commands_run_beside_each_other(face: Face, sandbox: Any) -> None:
    if not face.is_async:
        results = [sandbox.commands.run(f"echo {number}") for number in range(5)]
    else:
        results = await asyncio.gather(*(sandbox.commands.run(f"echo {number}") for number in range(20)))
    assert [one.stdout for one in results] == [f"{number}\n" for number in range(len(results))]
