"""What SWE-ReX's own tests ask of a runtime and a deployment, asked of sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    DeploymentNotStartedError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
    SessionNotInitializedError,
)
from swerex.runtime.abstract import (
    BashAction,
    BashInterruptAction,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    UploadRequest,
    WriteFileRequest,
)

from atoll.adapters.swerex import AtollDeployment, AtollDeploymentConfig, AtollRuntime

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def runtime() -> AsyncIterator[AtollRuntime]:
    deployment = AtollDeployment(network="none")
    await deployment.start()
    await deployment.runtime.create_session(CreateBashSessionRequest())
    yield deployment.runtime
    await deployment.stop()


async def said(runtime: AtollRuntime, command: str, **options: object) -> str:
    observed = await runtime.run_in_session(BashAction(command=command, timeout=60.0, **options))
    return str(observed.output)


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("echo ''", "\n"),
        ("printf '\n\nx\n\n\n'", "\n\nx\n\n\n"),
        ("echo '\n \nhello\nworld'", "\n \nhello\nworld\n"),
        ("", ""),
        ("\n\n \n", ""),
        ("# echo hello", ""),
        ("\n\n echo 'one' \n \n echo 'two' \n\n", "one\ntwo\n"),
        ("cat <<EOF\nfirst\nsecond\nEOF", "first\nsecond\n"),
        ("for i in {1..3};\n do echo hello;\n done", "hello\n" * 3),
        ("[[ $env == $env ]]", ""),
        ("echo 'hw';A=();echo 'asdf'", "hw\nasdf\n"),
        ("(sleep 1000) & disown", ""),
        ("seq 100000 | tail -c 7", "100000\n"),
    ],
)
async def test_a_command_writes_what_it_writes(runtime: AtollRuntime, command: str, output: str) -> None:
    found = await said(runtime, command)
    assert found.splitlines()[1:] == [] if "disown" in command else found == output


async def test_an_exit_code_is_told_raised_or_ignored(runtime: AtollRuntime) -> None:
    silent = await runtime.run_in_session(BashAction(command="no-such-program", check="silent"))
    assert silent.exit_code == 127
    assert (await runtime.run_in_session(BashAction(command="A=(); false", check="ignore"))).exit_code is None
    with pytest.raises(NonZeroExitCodeError, match="it is: "):
        await runtime.run_in_session(BashAction(command="false && true", error_msg="it is"))
    await said(runtime, "false || true")


async def test_a_session_keeps_its_variables_directory_and_prompt(runtime: AtollRuntime) -> None:
    await said(runtime, "cd /usr/share && kept=$((6 * 7)) && PS1='mine> '")
    assert await said(runtime, "echo $kept in $PWD") == "42 in /usr/share\n"


async def test_sessions_do_not_see_each_other(runtime: AtollRuntime) -> None:
    for name in ("one", "two"):
        await runtime.create_session(CreateBashSessionRequest(session=name))
    await asyncio.gather(
        said(runtime, "sleep 0.2; x=1", session="one"), said(runtime, "sleep 0.2; y=2", session="two")
    )
    assert await said(runtime, "echo $x,$y", session="one") == "1,\n"
    with pytest.raises(SessionExistsError):
        await runtime.create_session(CreateBashSessionRequest(session="one"))
    for name in ("one", "two"):
        await runtime.close_session(CloseBashSessionRequest(session=name))
    with pytest.raises(SessionDoesNotExistError):
        await runtime.close_session(CloseBashSessionRequest(session="one"))
    with pytest.raises(SessionDoesNotExistError):
        await said(runtime, "true", session="one")


async def test_files_are_sourced_when_a_session_starts(runtime: AtollRuntime) -> None:
    await runtime.write_file(WriteFileRequest(path="/tmp/setup.sh", content="echo sourced; ready=yes\n"))
    request = CreateBashSessionRequest(session="sourced", startup_source=["/tmp/setup.sh"])
    assert "sourced\n" in (await runtime.create_session(request)).output
    assert await said(runtime, "echo $ready", session="sourced") == "yes\n"
    await runtime.close_session(CloseBashSessionRequest(session="sourced"))


async def test_what_is_no_shell_text_is_refused(runtime: AtollRuntime) -> None:
    with pytest.raises(BashIncorrectSyntaxError) as caught:
        await said(runtime, "(a")
    assert caught.value.extra_info.keys() == {"bash_stdout", "bash_stderr"}
    assert await said(runtime, "echo fine") == "fine\n"


async def test_a_program_is_talked_to_and_left(runtime: AtollRuntime) -> None:
    await said(runtime, "python3 -q", is_interactive_command=True, expect=[">>> "])
    assert await said(runtime, "print(6 * 7)", is_interactive_command=True, expect=[">>> "]) == "42"
    await said(runtime, "quit()", is_interactive_quit=True)
    assert await said(runtime, "echo back") == "back\n"


@pytest.mark.parametrize(
    "stubborn", ["sleep 1000", "trap '' INT; sleep 1000", "bash -c \"trap '' INT; sleep 1000\""]
)
async def test_what_runs_too_long_is_interrupted(runtime: AtollRuntime, stubborn: str) -> None:
    with pytest.raises(CommandTimeoutError):
        await runtime.run_in_session(BashAction(command=f"({stubborn})", timeout=0.2))
    await runtime.run_in_session(BashInterruptAction(n_retry=1))
    assert await said(runtime, "echo back") == "back\n"


@pytest.mark.parametrize(("trap", "exit_code"), [("INT", 130), ("'' INT", 148)])
async def test_what_one_task_waits_for_is_interrupted_by_another(
    runtime: AtollRuntime, trap: str, exit_code: int
) -> None:
    await runtime.create_session(CreateBashSessionRequest(session="long"))
    lines = f"(trap {trap}; rm -f /tmp/begun; mkfifo /tmp/begun; > /tmp/begun; sleep 1000)"
    command = BashAction(command=lines, session="long", check="silent")
    running = asyncio.create_task(runtime.run_in_session(command))
    wait = "until [ -p /tmp/begun ]; do sleep 0.05; done; cat /tmp/begun; rm /tmp/begun"
    await runtime.execute(Command(command=wait, shell=True))
    await runtime.run_in_session(BashInterruptAction(session="long", n_retry=1))
    assert (await running).exit_code == exit_code
    await runtime.close_session(CloseBashSessionRequest(session="long"))


async def test_a_shell_that_exits_is_told(runtime: AtollRuntime) -> None:
    await runtime.create_session(CreateBashSessionRequest(session="ending"))
    with pytest.raises(SessionNotInitializedError):
        await said(runtime, "exit 3", session="ending")
    await runtime.close_session(CloseBashSessionRequest(session="ending"))


async def test_programs_are_run_outside_of_sessions(runtime: AtollRuntime) -> None:
    assert (await runtime.execute(Command(command="echo $((1 + 1))", shell=True))).stdout == "2\n"
    assert (await runtime.execute(Command(command=["echo", "-n", "a  b"]))).stdout == "a  b"
    assert (await runtime.execute(Command(command="", shell=True, check=True))).exit_code == 0
    both = Command(command=["sh", "-c", "echo out; echo err >&2"], env={"A": "b"}, cwd="/")
    assert (await runtime.execute(both)).stderr == "err\n"
    merged = await runtime.execute(both.model_copy(update={"merge_output_streams": True}))
    assert (merged.stdout, merged.stderr) == ("out\nerr\n", "")
    with pytest.raises(CommandTimeoutError):
        await runtime.execute(Command(command=["sleep", "10"], timeout=0.1))
    with pytest.raises(NonZeroExitCodeError, match="so: "):
        await runtime.execute(Command(command=["false"], check=True, error_msg="so"))
    with pytest.raises(FileNotFoundError):
        await runtime.execute(Command(command=["no-such-program"]))


async def test_files_are_written_read_and_uploaded(runtime: AtollRuntime, tmp_path: Path) -> None:
    content = "x" * 1024 * 1024 + "ü\n"
    await runtime.write_file(WriteFileRequest(path="/tmp/new/directory/file", content=content))
    assert (await runtime.read_file(ReadFileRequest(path="/tmp/new/directory/file"))).content == content
    with pytest.raises(FileNotFoundError):
        await runtime.read_file(ReadFileRequest(path="/tmp/missing"))
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/latin").write_bytes(b"\xfc")
    await runtime.upload(UploadRequest(source_path=str(tmp_path / "tree"), target_path="/tmp/tree"))
    request = ReadFileRequest(path="/tmp/tree/latin", encoding="latin-1")
    assert (await runtime.read_file(request)).content == "ü"
    with pytest.raises(UnicodeDecodeError):
        await runtime.read_file(ReadFileRequest(path="/tmp/tree/latin"))


async def test_a_deployment_that_was_killed_is_not_alive() -> None:
    deployment = AtollDeploymentConfig(memory_mib=256).get_deployment()
    with pytest.raises(DeploymentNotStartedError):
        await deployment.is_alive()
    await deployment.start()
    assert await deployment.is_alive()
    await asyncio.to_thread(deployment.runtime.sandbox.kill)
    assert not await deployment.is_alive()
    await deployment.stop()
    with pytest.raises(DeploymentNotStartedError):
        _ = deployment.runtime
