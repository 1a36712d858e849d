from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.sdk.fakes import SANDBOX_ID, FakeSupervisor, Handler, info, process, sent

from atoll import AtollError, Sandbox
from atoll.errors import (
    AgentError,
    DeadlineError,
    ExecTimeoutError,
    FileMissingError,
    InvalidSpecError,
    SandboxCrashedError,
    StateError,
)
from atoll.types import TerminalSize

PROCESSES = ("POST", "/atoll/processes")
SIGNAL = ("POST", "/atoll/processes/7/signal")
STDIN = ("POST", "/atoll/processes/7/stdin")


def count(supervisor: FakeSupervisor, route: tuple[str, str]) -> int:
    return sum((method, path.partition("?")[0]) == route for method, path in supervisor.agent.requests)


def test_a_result_has_both_streams_and_the_exit_code(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    supervisor.agent.routes[PROCESSES] = process(
        ("o", b"out"), ("k", b""), ("e", b"err"), ("o", b"put"), exit_code=3
    )
    result = sandbox.run("make")
    assert (result.stdout, result.stderr, result.exit_code, result.truncated) == ("output", "err", 3, False)


def test_a_request_says_what_was_asked_for(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    told = []
    end = process()
    supervisor.agent.routes[PROCESSES] = lambda handler: (told.append(sent(handler)), end(handler))
    sandbox.exec(["ls", "-l"], cwd="/tmp", env={"A": "b"}, user="root", timeout_s=1.5)
    sandbox.run("ls", timeout_s=None, cwd=Path("/srv"))
    for request in told:
        assert request.pop("tag").startswith("exec-")
    assert told == [
        {"argv": ["ls", "-l"], "cwd": "/tmp", "env": {"A": "b"}, "user": "root", "timeout_ms": 1500},
        {"line": "ls", "cwd": "/srv"},
    ]


def test_one_connection_serves_one_call_after_the_other(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    supervisor.agent.routes[PROCESSES] = process()
    for _ in range(5):
        sandbox.exec(["true"])
    assert supervisor.dials == [(SANDBOX_ID, 49983)]


def test_a_connection_that_was_closed_while_idle_is_dialled_anew(
    supervisor: FakeSupervisor, sandbox: Sandbox
) -> None:
    supervisor.agent.routes[PROCESSES] = process()
    sandbox.exec(["true"])
    supervisor.agent.close()
    sandbox.exec(["true"])
    assert len(supervisor.dials) == 2
    assert count(supervisor, PROCESSES) == 2


def test_the_last_bytes_of_a_long_output_are_kept(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    supervisor.agent.routes[PROCESSES] = process(
        *[("o", b"%04d" % number) for number in range(1000)], ("e", b"all")
    )
    result = sandbox.run("seq", max_output_bytes=10)
    assert (result.stdout, result.stderr, result.truncated) == ("9709980999", "all", True)


def test_callbacks_get_whole_characters_and_every_byte_of_text(
    supervisor: FakeSupervisor, sandbox: Sandbox
) -> None:
    pieces = [("o", bytes([byte])) for byte in "aé€🏝".encode()]
    supervisor.agent.routes[PROCESSES] = process(*pieces, ("e", b"oops"), ("o", b"\xf0\x9f"))
    stdout: list[str]
    stderr: list[str]
    stdout, stderr = [], []
    result = sandbox.run("x", on_stdout=stdout.append, on_stderr=stderr.append)
    assert stdout == ["a", "é", "€", "🏝", "\ufffd"]
    assert stderr == ["oops"]
    assert result.stdout_bytes == "aé€🏝".encode() + b"\xf0\x9f"


def test_a_timeout_of_the_program_is_an_error_of_its_own(
    supervisor: FakeSupervisor, sandbox: Sandbox
) -> None:
    supervisor.agent.routes[PROCESSES] = process(exit_code=137, signal=9, timed_out=True)
    with pytest.raises(ExecTimeoutError, match=r"'sleep 100' ran past 60 s, .*timeout_s"):
        sandbox.run("sleep 100")
    with pytest.raises(ExecTimeoutError, match=r"ran past 0\.5 s, "):
        sandbox.exec(["sleep", "100"], timeout_s=0.5)
    supervisor.agent.routes["GET", "/atoll/processes/7/output"] = supervisor.agent.routes[PROCESSES]
    with pytest.raises(ExecTimeoutError, match=r"pid 7 ran past 2 s, "):
        sandbox.processes.start("sleep 100", timeout_s=2).wait()
    with pytest.raises(ExecTimeoutError, match=r"pid 7 ran past its timeout_s, "):
        sandbox.processes.attach(7).wait()


def test_a_timeout_brings_what_was_written_until_then(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    supervisor.agent.routes[PROCESSES] = process(
        ("o", "half é".encode()[:-1]), ("e", b"oops"), exit_code=137, signal=9, timed_out=True
    )
    told: list[str] = []
    with pytest.raises(ExecTimeoutError) as raised:
        sandbox.run(f"make {'x' * 100}", on_stdout=told.append)
    result = raised.value.result
    assert (result.exit_code, result.stdout, result.stderr) == (137, "half \ufffd", "oops")
    assert result.command == f"make {'x' * 72}..."
    assert told == ["half ", "\ufffd"]
    with pytest.raises(ExecTimeoutError) as raised:
        sandbox.processes.start("make", stream=True).wait()
    assert (raised.value.result.stderr, raised.value.result.command) == ("oops", "make")


def test_a_program_that_is_missing_is_named(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    body = {"code": "program_missing", "message": "program 'nope' is not in PATH"}
    supervisor.agent.routes[PROCESSES] = lambda handler: handler.send_json(body, 404)
    with pytest.raises(FileMissingError, match="nope") as raised:
        sandbox.exec(["nope"])
    assert raised.value.sandbox_id == SANDBOX_ID


@pytest.mark.parametrize(
    ("state", "kind"), [("crashed", SandboxCrashedError), ("paused", StateError), ("suspended", StateError)]
)
def test_a_connection_that_ends_in_the_middle_is_explained_by_the_state(
    supervisor: FakeSupervisor, sandbox: Sandbox, state: str, kind: type[AtollError]
) -> None:
    supervisor.api.routes["GET", f"/v1/sandboxes/{SANDBOX_ID}"] = info(state=state, reason="out of memory")

    def die(handler: Handler) -> None:
        handler.begin_stream()
        handler.frames(("s", {"pid": 7}), ("o", b"half"))
        handler.cut()

    supervisor.agent.routes[PROCESSES] = die
    with pytest.raises(kind):
        sandbox.run("make")
    assert count(supervisor, PROCESSES) == 1
    assert count(supervisor, SIGNAL) == 0


@pytest.mark.parametrize(
    ("on_crash", "hint"), [("reboot", "from its disk"), ("rollback", "newest snapshot"), ("stop", "`resume`")]
)
def test_who_waits_is_told_what_comes_after_a_crash(
    supervisor: FakeSupervisor, sandbox: Sandbox, on_crash: str, hint: str
) -> None:
    told = info(state="crashed", reason="out of memory", on_crash=on_crash)
    supervisor.api.routes["GET", f"/v1/sandboxes/{SANDBOX_ID}"] = told
    supervisor.agent.routes[PROCESSES] = Handler.cut
    with pytest.raises(SandboxCrashedError) as raised:
        sandbox.run("make")
    assert hint in (raised.value.hint or "")


@pytest.mark.parametrize(("has_memory", "hint"), [(True, "continue when it wakes"), (False, "have ended")])
def test_who_waits_is_told_what_a_sleep_does_to_programs(
    supervisor: FakeSupervisor, sandbox: Sandbox, has_memory: bool, hint: str
) -> None:
    told = info(state="suspended", has_memory=has_memory)
    supervisor.api.routes["GET", f"/v1/sandboxes/{SANDBOX_ID}"] = told
    supervisor.agent.routes[PROCESSES] = Handler.cut
    with pytest.raises(StateError, match=hint):
        sandbox.run("make")


def test_a_program_is_never_started_twice_because_a_connection_ended(
    supervisor: FakeSupervisor, sandbox: Sandbox
) -> None:
    supervisor.agent.routes[PROCESSES] = process()
    sandbox.exec(["true"])
    supervisor.agent.routes[PROCESSES] = Handler.cut
    with pytest.raises(StateError):
        sandbox.exec(["pay"])
    assert count(supervisor, PROCESSES) == 2


def test_a_stream_that_ends_without_its_last_frame_is_no_success(
    supervisor: FakeSupervisor, sandbox: Sandbox
) -> None:
    def end_early(handler: Handler) -> None:
        handler.begin_stream()
        handler.frames(("s", {"pid": 7}))
        handler.chunk(b"")

    supervisor.agent.routes[PROCESSES] = end_early
    supervisor.agent.routes[SIGNAL] = Handler.send_nothing
    with pytest.raises(AgentError):
        sandbox.run("make")


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ValueError])
def test_an_interrupted_call_kills_its_program(
    supervisor: FakeSupervisor, sandbox: Sandbox, interruption: type[BaseException]
) -> None:
    killed = threading.Event()

    def endless(handler: Handler) -> None:
        handler.begin_stream()
        handler.frames(("s", {"pid": 7}), ("o", b"1"))
        killed.wait(60)
        handler.close_connection = True

    def kill(handler: Handler) -> None:
        assert sent(handler) == {"signal": 9}
        killed.set()
        handler.send_nothing()

    def interrupt(_: str) -> None:
        raise interruption

    supervisor.agent.routes[PROCESSES] = endless
    supervisor.agent.routes[SIGNAL] = kill
    with pytest.raises(interruption):
        sandbox.run("sleep inf", on_stdout=interrupt)
    assert killed.is_set()


@pytest.mark.parametrize("size", [5, 1_000_000])
def test_standard_input_is_sent_and_closed(supervisor: FakeSupervisor, sandbox: Sandbox, size: int) -> None:
    got: list[bytes] = []
    read = threading.Event()

    def cat(handler: Handler) -> None:
        assert sent(handler)["stdin"] is True
        handler.begin_stream()
        handler.frames(("s", {"pid": 7}))
        read.wait(60)
        handler.frames(("x", {"exit_code": 0}))
        handler.chunk(b"")

    def take(handler: Handler) -> None:
        assert handler.path.endswith("?eof=1")
        got.append(handler.body)
        handler.send_nothing()
        read.set()

    supervisor.agent.routes[PROCESSES] = cat
    supervisor.agent.routes[STDIN] = take
    assert sandbox.run("cat", stdin="x" * size).exit_code == 0
    assert got == [b"x" * size]


def test_an_error_of_the_callers_own_input_kills_the_program_and_is_raised(
    supervisor: FakeSupervisor, sandbox: Sandbox
) -> None:
    killed = threading.Event()

    def cat(handler: Handler) -> None:
        handler.begin_stream()
        handler.frames(("s", {"pid": 7}))
        killed.wait(60)
        handler.frames(("x", {"exit_code": 137, "signal": 9}))
        handler.chunk(b"")

    def broken() -> Iterator[bytes]:
        yield b"a"
        raise ZeroDivisionError

    supervisor.agent.routes[PROCESSES] = cat
    supervisor.agent.routes[SIGNAL] = lambda handler: (killed.set(), handler.send_nothing())
    with pytest.raises(ZeroDivisionError):
        sandbox.run("cat", stdin=broken())


def test_a_handle_iterates_over_output_and_then_knows_the_end(
    supervisor: FakeSupervisor, sandbox: Sandbox
) -> None:
    supervisor.agent.routes[PROCESSES] = process(("o", b"a"), ("e", b"b"), exit_code=4)
    with sandbox.processes.start("x", stream=True) as handle:
        assert [(output.stream, output.text) for output in handle] == [("stdout", "a"), ("stderr", "b")]
        assert handle.wait().exit_code == 4


def test_a_background_program_is_followed_by_its_pid(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    supervisor.agent.routes[PROCESSES] = process()
    supervisor.agent.routes["GET", "/atoll/processes/7/output"] = process(("o", b"kept"), exit_code=5)
    assert sandbox.processes.start("server").wait().stdout == "kept"
    assert sandbox.processes.attach(7).wait().exit_code == 5


def test_waiting_for_a_program_ends_at_its_timeout_and_leaves_it_alone(
    supervisor: FakeSupervisor, sandbox: Sandbox
) -> None:
    done = threading.Event()

    def endless(handler: Handler) -> None:
        handler.begin_stream()
        handler.frames(("s", {"pid": 7}))
        done.wait(60)
        handler.close_connection = True

    supervisor.agent.routes["GET", "/atoll/processes/7/output"] = endless
    try:
        with pytest.raises(DeadlineError):
            sandbox.processes.attach(7).wait(timeout_s=0.2)
    finally:
        done.set()
    assert count(supervisor, SIGNAL) == 0


def test_input_that_was_not_asked_for_at_the_start_is_refused_with_the_remedy(
    supervisor: FakeSupervisor, sandbox: Sandbox
) -> None:
    closed = {"code": "invalid", "message": "stdin not enabled or closed"}
    supervisor.agent.routes[STDIN] = lambda handler: handler.send_json(closed, 400)
    with pytest.raises(InvalidSpecError, match=r"stdin not enabled or closed \(start it with `stdin=True`"):
        sandbox.processes.attach(7).write_stdin("y\n")
    with pytest.raises(InvalidSpecError, match="stdin=True"):
        sandbox.processes.attach(7).close_stdin()


def test_killing_what_has_ended_is_no_error(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    gone = {"code": "process_not_found", "message": "no process 7"}
    supervisor.agent.routes[SIGNAL] = lambda handler: handler.send_json(gone, 404)
    sandbox.processes.attach(7).kill()


def test_a_terminal_gives_and_takes_raw_bytes(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    told: list[object] = []
    supervisor.agent.routes[PROCESSES] = lambda handler: (
        told.append(sent(handler)["pty"]),
        process(("t", b"\x1b[2J"), ("t", b"\xff"))(handler),
    )
    supervisor.agent.routes[STDIN] = lambda handler: (told.append(handler.body), handler.send_nothing())
    supervisor.agent.routes["POST", "/atoll/processes/7/resize"] = lambda handler: (
        told.append(sent(handler)),
        handler.send_nothing(),
    )
    with sandbox.processes.pty(size=TerminalSize(100, 30)) as terminal:
        terminal.send(b"\x03")
        terminal.resize(TerminalSize(120, 40))
        assert list(terminal) == [b"\x1b[2J", b"\xff"]
        assert terminal.wait().exit_code == 0
    assert told == [{"cols": 100, "rows": 30}, b"\x03", {"cols": 120, "rows": 40}]


def test_a_line_and_a_list_are_not_mixed_up(sandbox: Sandbox) -> None:
    with pytest.raises(InvalidSpecError, match="shell line"):
        sandbox.exec("rm -r /tmp/x")
    with pytest.raises(InvalidSpecError, match="list"):
        sandbox.run(["ls"])  # type: ignore[arg-type]
    with pytest.raises(InvalidSpecError):
        sandbox.exec([])
    with pytest.raises(InvalidSpecError):
        sandbox.exec(["true"], timeout_s=0)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"X": 1}, r"env\['X'\] is of type int"),
        ({"A=B": "x"}, "'A=B' cannot be an environment variable"),
        ({"": "x"}, "'' cannot be"),
    ],
)
def test_variables_that_no_program_could_be_given_are_refused(
    sandbox: Sandbox, env: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidSpecError, match=message):
        sandbox.run("env", env=env)
    with pytest.raises(InvalidSpecError, match=message):
        sandbox.processes.start("env", env=env)


def test_a_network_is_a_preset_or_a_policy(sandbox: Sandbox) -> None:
    with pytest.raises(InvalidSpecError, match=r"network is 'foo' \(give 'none', .*'internet'"):
        sandbox.set_network("foo")  # type: ignore[arg-type]
