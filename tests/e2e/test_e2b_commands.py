"""The published E2B SDK runs commands through the guest agent."""

import asyncio
import threading
import time

import pytest
from e2b import (
    AsyncSandbox,
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    Sandbox,
    TimeoutException,
)

BOUND_S = 60
# Files that are run beside this one may have the port for as long as their tests take.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def sandbox(e2b_port: int, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    assert e2b_port == 49983, "the SDK's debug mode knows only this port"
    monkeypatch.setenv("E2B_DEBUG", "true")
    return Sandbox.create()


def test_a_command_gives_its_output_and_exit_code(sandbox: Sandbox) -> None:
    result = sandbox.commands.run("echo out; echo err >&2", timeout=BOUND_S)
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 0)


def test_a_failing_command_raises_with_its_code_and_output(sandbox: Sandbox) -> None:
    with pytest.raises(CommandExitException) as caught:
        sandbox.commands.run("echo before; exit 7", timeout=BOUND_S)
    assert (caught.value.exit_code, caught.value.stdout) == (7, "before\n")


def test_commands_run_as_the_default_user_in_its_home(sandbox: Sandbox) -> None:
    result = sandbox.commands.run("whoami; pwd; echo $HOME", timeout=BOUND_S)
    assert result.stdout == "user\n/home/user\n/home/user\n"


def test_user_directory_and_environment_can_be_chosen(sandbox: Sandbox) -> None:
    result = sandbox.commands.run(
        'echo "$(id -u) $PWD $WORD"', user="root", cwd="/tmp", envs={"WORD": "größe"}, timeout=BOUND_S
    )
    assert result.stdout == "0 /tmp größe\n"


def test_a_missing_directory_is_an_invalid_argument(sandbox: Sandbox) -> None:
    with pytest.raises(InvalidArgumentException, match="does not exist"):
        sandbox.commands.run("true", cwd="/no/such/place", timeout=BOUND_S)


def test_output_arrives_while_the_command_runs(sandbox: Sandbox) -> None:
    seen = threading.Event()
    lines: list[str] = []

    def take(text: str) -> None:
        lines.append(text)
        seen.set()
        # The command waits for this file, so it can only end once its first output was seen.
        sandbox.files.write("/tmp/e2b-seen", "yes")

    sandbox.files.remove("/tmp/e2b-seen")
    sandbox.commands.run(
        "echo first; until [ -s /tmp/e2b-seen ]; do sleep 0.1; done; sleep 0.1; echo last",
        on_stdout=take,
        timeout=BOUND_S,
    )
    assert seen.is_set()
    assert "".join(lines) == "first\nlast\n"


def test_ten_megabytes_of_output_arrive_whole(sandbox: Sandbox) -> None:
    size = 10_000_000
    result = sandbox.commands.run(f"head -c {size} /dev/zero | tr '\\0' x", timeout=BOUND_S)
    assert result.stdout == "x" * size


def test_a_background_command_takes_input_until_it_is_closed(sandbox: Sandbox) -> None:
    command = sandbox.commands.run("cat", background=True, stdin=True, timeout=BOUND_S)
    sandbox.commands.send_stdin(command.pid, "one\n")
    sandbox.commands.stream_input(command.pid, iter(["two\n", "three\n"]))
    sandbox.commands.close_stdin(command.pid)
    assert command.wait().stdout == "one\ntwo\nthree\n"


def test_a_killed_command_ends_with_an_error_and_cannot_be_killed_again(sandbox: Sandbox) -> None:
    command = sandbox.commands.run("sleep 600", background=True, timeout=BOUND_S)
    assert command.kill()
    with pytest.raises(CommandExitException) as caught:
        command.wait()
    assert caught.value.exit_code != 0
    assert not sandbox.commands.kill(command.pid)


def test_a_running_command_is_listed_and_can_be_connected_to(sandbox: Sandbox) -> None:
    command = sandbox.commands.run(
        "sleep 1; echo missed; touch /tmp/e2b-said; until [ -e /tmp/e2b-go ]; do sleep 0.1; done; echo late",
        background=True,
        timeout=BOUND_S,
    )
    pid = command.pid
    command.disconnect()
    assert pid in [process.pid for process in sandbox.commands.list()]
    sandbox.commands.run("until [ -e /tmp/e2b-said ]; do sleep 0.1; done", timeout=BOUND_S)
    again = sandbox.commands.connect(pid, timeout=BOUND_S)
    sandbox.files.write("/tmp/e2b-go", "")
    assert again.wait().stdout == "missed\nlate\n"
    sandbox.commands.run("rm /tmp/e2b-go /tmp/e2b-said")
    with pytest.raises(NotFoundException):
        sandbox.commands.connect(2_000_000_000)


def test_a_command_is_killed_when_its_time_is_over(sandbox: Sandbox) -> None:
    with pytest.raises(TimeoutException):
        sandbox.commands.run("exec sleep 987654", timeout=1)
    limit = time.monotonic() + BOUND_S
    while any("sleep 987654" in " ".join(process.args) for process in sandbox.commands.list()):
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_async_commands_run_beside_each_other(sandbox: Sandbox) -> None:
    async def main() -> list[str]:
        box = await AsyncSandbox.create()
        calls = [box.commands.run(f"echo {number}", timeout=BOUND_S) for number in range(5)]
        return [result.stdout for result in await asyncio.gather(*calls)]

    assert asyncio.run(main()) == [f"{number}\n" for number in range(5)]


def test_async_background_commands_take_input_and_are_killed(sandbox: Sandbox) -> None:
    async def main() -> str:
        box = await AsyncSandbox.create()
        reader = await box.commands.run("cat", background=True, stdin=True, timeout=BOUND_S)
        await box.commands.send_stdin(reader.pid, "hello\n")
        await box.commands.close_stdin(reader.pid)
        text = (await reader.wait()).stdout
        sleeper = await box.commands.run("sleep 600", background=True, timeout=BOUND_S)
        assert await sleeper.kill()
        with pytest.raises(CommandExitException):
            await sleeper.wait()
        assert not await box.commands.kill(sleeper.pid)
        return text

    assert asyncio.run(main()) == "hello\n"
