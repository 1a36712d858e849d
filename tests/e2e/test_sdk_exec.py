from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from atoll import AsyncSandbox, Sandbox
from atoll.errors import DeadlineError, ExecFailedError, ExecTimeoutError, InvalidSpecError

MIB = 1 << 20


@pytest.fixture(scope="module")
def sandbox(module_home: Path) -> Iterator[Sandbox]:
    with Sandbox.create(env={"COLOUR": "blue"}) as sandbox:
        yield sandbox


def test_a_line_runs_as_the_user_in_its_home(sandbox: Sandbox) -> None:
    result = sandbox.run('echo "$(id -un) $(pwd) $HOME $COLOUR"; echo oops >&2; exit 3')
    assert (result.stdout, result.stderr, result.exit_code) == (
        "user /home/user /home/user blue\n",
        "oops\n",
        3,
    )


def test_a_program_gets_its_arguments_directory_variables_and_user(sandbox: Sandbox) -> None:
    script = 'printf "%s|" "$@" "$PWD" "$A" "$COLOUR" "$(id -un)"'
    argv = ["sh", "-c", script, "sh", "a b", "$HOME", "ä"]
    result = sandbox.exec(argv, cwd="/tmp", env={"A": "b", "COLOUR": "red"}, user="root")
    assert result.check().stdout == "a b|$HOME|ä|/tmp|b|red|root|"


def test_a_checked_program_that_fails_is_an_error_with_its_code_and_what_it_said(sandbox: Sandbox) -> None:
    assert sandbox.run("echo fine", check=True).stdout == "fine\n"
    with pytest.raises(ExecFailedError, match="ended with 3: oops") as failed:
        sandbox.run("echo half; echo oops >&2; exit 3", check=True)
    assert (failed.value.result.exit_code, failed.value.result.stdout) == (3, "half\n")
    with pytest.raises(ExecFailedError, match="'false' ended with 1"):
        sandbox.exec(["false"], check=True)


def test_what_is_missing_is_named(sandbox: Sandbox) -> None:
    with pytest.raises(FileNotFoundError, match="nosuchprogram"):
        sandbox.exec(["nosuchprogram"])
    with pytest.raises(FileNotFoundError, match="/nosuchplace"):
        sandbox.exec(["true"], cwd="/nosuchplace")
    with pytest.raises(InvalidSpecError, match="nosuchuser"):
        sandbox.exec(["true"], user="nosuchuser")


@pytest.mark.parametrize("size", [5, 3 * MIB])
def test_standard_input_arrives_whole(sandbox: Sandbox, size: int) -> None:
    data = bytes(range(251)) * (size // 251 + 1)
    told = sandbox.run("sha256sum", stdin=data).check().stdout.split()[0]
    assert told == hashlib.sha256(data).hexdigest()


def test_output_is_told_while_it_comes(sandbox: Sandbox) -> None:
    stdout: list[str] = []
    stderr: list[str] = []
    result = sandbox.run("echo one; echo two >&2; printf ä", on_stdout=stdout.append, on_stderr=stderr.append)
    assert ("".join(stdout), "".join(stderr)) == ("one\nä", "two\n")
    assert result.stdout == "one\nä"


def test_much_output_passes_and_the_last_of_it_is_kept(sandbox: Sandbox) -> None:
    result = sandbox.run(f"head -c {128 * MIB} /dev/zero; echo end", max_output_bytes=1000, timeout_s=300)
    assert result.stdout_bytes == b"\0" * 996 + b"end\n"
    assert result.truncated
    with sandbox.processes.start(f"head -c {64 * MIB} /dev/zero", stream=True) as process:
        assert sum(len(output.data) for output in process) == 64 * MIB


def test_a_program_that_takes_too_long_is_killed_with_its_children(sandbox: Sandbox) -> None:
    with pytest.raises(ExecTimeoutError, match="ran past 5 s, ") as raised:
        sandbox.run("echo begun; echo oops >&2; sleep 4242 & sleep 4242", timeout_s=5)
    assert (raised.value.result.stdout, raised.value.result.stderr) == ("begun\n", "oops\n")
    sandbox.run("while pgrep -f '^sleep 4242'; do sleep 0.1; done", timeout_s=90).check()


def test_a_line_returns_when_its_shell_exits_whatever_it_left_behind(sandbox: Sandbox) -> None:
    result = sandbox.run("sleep 3131 & echo started")
    assert (result.stdout, result.exit_code) == ("started\n", 0)
    sandbox.run("until pkill -f '^sleep 3131'; do sleep 0.1; done", timeout_s=90).check()


def test_ctrl_c_kills_the_command_and_not_the_sandbox(sandbox: Sandbox) -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sandbox.run("echo begun; exec sleep 2121", on_stdout=interrupt, timeout_s=None)
    sandbox.run("while pgrep -f '^sleep 2121'; do sleep 0.1; done", timeout_s=90).check()


def test_the_async_sandbox_runs_many_lines_at_once_and_cancels_one(
    module_home: Path, sandbox: Sandbox
) -> None:
    async def work() -> list[str]:
        got: list[str] = []
        async with await AsyncSandbox.connect(sandbox.id) as twin:

            async def one(number: int) -> None:
                got.append((await twin.run(f"echo {number}")).stdout.strip())

            async with anyio.create_task_group() as group:
                for number in range(5):
                    group.start_soon(one, number)
            process = await twin.processes.start(["sleep", "1717"])
            with pytest.raises(DeadlineError):
                await process.wait(timeout_s=0.1)
            begun = anyio.Event()

            async def long() -> None:
                await twin.run("echo; exec sleep 1717", on_stdout=lambda _: begun.set(), timeout_s=None)

            async with anyio.create_task_group() as group:
                group.start_soon(long)
                with anyio.fail_after(120):
                    await begun.wait()
                group.cancel_scope.cancel()
            with anyio.fail_after(120):
                # The kill was sent when the call was cancelled; the program ends a moment after.
                while True:
                    if [row.pid for row in await twin.processes.list()] == [process.pid]:
                        break
                    await anyio.sleep(0.05)
            await process.kill()
            assert (await process.wait()).exit_code == 137
        return got

    assert sorted(anyio.run(work)) == ["0", "1", "2", "3", "4"]
