"""What a handle on a stream does after its sandbox has gone to sleep under it, and after it was left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from tests.unit.sdk.fakes import SANDBOX_ID, FakeSupervisor, Handler, info, process
from tests.unit.sdk.test_sdk_async import run

from atoll import AsyncSandbox, Process, Sandbox, Terminal
from atoll.errors import StateError
from atoll.sdk._sync.watch import Watch

PROCESSES = ("POST", "/atoll/processes")
OUTPUT = ("GET", "/atoll/processes/7/output")
SIGNAL = ("POST", "/atoll/processes/7/signal")
WATCH = ("GET", "/atoll/watch")
INFO = ("GET", f"/v1/sandboxes/{SANDBOX_ID}")
START = ("s", {"pid": 7})
CUT_S = 0.2


@pytest.fixture
def asleep(supervisor: FakeSupervisor) -> Callable[[], None]:
    """Put the sandbox to sleep, as somebody else would."""

    def sleep() -> None:
        supervisor.api.routes[INFO] = info(state="suspended", has_memory=True)
        supervisor.agent.cut_all()

    return sleep


def begin(supervisor: FakeSupervisor, route: tuple[str, str]) -> None:
    """Let ``route`` answer with a stream that begins and does not end."""
    supervisor.agent.routes[SIGNAL] = Handler.send_nothing

    def stream(handler: Handler) -> None:
        handler.begin_stream()
        handler.frames(("s", {"pid": 7}))

    supervisor.agent.routes[route] = stream


def signals(supervisor: FakeSupervisor) -> int:
    return supervisor.agent.requests.count(SIGNAL)


@pytest.mark.parametrize("receiving", [True, False])
def test_leaving_a_terminal_of_a_sandbox_that_was_put_to_sleep_kills_and_wakes_nothing(
    supervisor: FakeSupervisor, sandbox: Sandbox, asleep: Callable[[], None], *, receiving: bool
) -> None:
    begin(supervisor, PROCESSES)
    with sandbox.processes.pty() as terminal:
        asleep()
        if receiving:
            with pytest.raises(StateError, match="was suspended by another client"):
                terminal.receive()
        dials = len(supervisor.dials)
    assert signals(supervisor) == 0
    assert len(supervisor.dials) == dials


@pytest.mark.parametrize("sleeping", [True, False])
def test_leaving_a_terminal_that_was_closed_kills_and_wakes_nothing(
    supervisor: FakeSupervisor, sandbox: Sandbox, asleep: Callable[[], None], *, sleeping: bool
) -> None:
    begin(supervisor, PROCESSES)
    with sandbox.processes.pty() as terminal:
        terminal.close()
        if sleeping:
            asleep()
        dials = len(supervisor.dials)
    assert signals(supervisor) == 0
    assert len(supervisor.dials) == dials


def test_leaving_a_terminal_that_was_aborted_kills_its_program(
    supervisor: FakeSupervisor, sandbox: Sandbox
) -> None:
    begin(supervisor, PROCESSES)
    with sandbox.processes.pty() as terminal:
        terminal.abort()
        with pytest.raises(StateError, match="this program aborted"):
            terminal.receive()
    assert signals(supervisor) == 1


def test_a_handle_finds_its_program_again_after_a_sleep(
    supervisor: FakeSupervisor, sandbox: Sandbox, asleep: Callable[[], None]
) -> None:
    begin(supervisor, PROCESSES)
    handles: list[tuple[Process, Callable[[Process], str]]] = [
        (sandbox.processes.start("make", stream=True), lambda handle: handle.wait().stdout),
        (
            sandbox.processes.start("make", stream=True),
            lambda handle: "".join(output.text for output in handle),
        ),
    ]
    asleep()
    for handle, use in handles:
        with pytest.raises(StateError, match="was suspended by another client"):
            use(handle)
    supervisor.agent.routes[OUTPUT] = process(("o", b"made"))
    for handle, use in handles:
        assert use(handle) == "made"


def test_a_character_that_a_sleep_cut_in_two_whole_when_it_is_told_again(
    supervisor: FakeSupervisor, sandbox: Sandbox, asleep: Callable[[], None]
) -> None:
    def half(handler: Handler) -> None:
        handler.begin_stream()
        handler.frames(("s", {"pid": 7}), ("o", "é".encode()[:1]))

    supervisor.agent.routes[PROCESSES] = half
    handle = sandbox.processes.start("make", stream=True)
    assert next(iter(handle)).text == ""
    asleep()
    with pytest.raises(StateError, match="was suspended by another client"):
        next(iter(handle))
    supervisor.agent.routes[OUTPUT] = process(("o", "é".encode()))
    assert "".join(output.text for output in handle) == "é"


@pytest.mark.parametrize(
    "told",
    [[], [START], [START, ("o", b"ma")], [START, ("x", {"exit_code": 0})]],
    ids=["nothing", "start", "output", "end"],
)
def test_a_wait_that_was_cancelled_may_be_followed_by_another(
    supervisor: FakeSupervisor, told: list[tuple[str, Any]]
) -> None:
    def part(handler: Handler) -> None:
        handler.begin_stream()
        handler.frames(*told)

    async def work(sandbox: AsyncSandbox) -> None:
        begin(supervisor, PROCESSES)
        supervisor.agent.routes[OUTPUT] = part
        handle = await sandbox.processes.start("make")
        with anyio.move_on_after(CUT_S) as cut:
            await handle.wait()
        assert cut.cancelled_caught
        supervisor.agent.routes[OUTPUT] = process(("o", b"made"))
        assert (await handle.wait()).stdout == "made"

    run(work)


def test_a_stream_of_which_a_wait_was_cancelled_says_so(supervisor: FakeSupervisor) -> None:
    async def work(sandbox: AsyncSandbox) -> None:
        begin(supervisor, PROCESSES)
        begin(supervisor, WATCH)
        terminal, watch = await sandbox.processes.pty(), await sandbox.files.watch("/workspace")
        for take in (terminal.receive, watch.next):
            with anyio.move_on_after(CUT_S) as cut:
                await take()
            assert cut.cancelled_caught
            with pytest.raises(StateError, match="this program cancelled an earlier wait for it"):
                await take()

    run(work)


def watching(supervisor: FakeSupervisor, sandbox: Sandbox) -> Watch:
    begin(supervisor, WATCH)
    return sandbox.files.watch("/workspace")


def typing_at(supervisor: FakeSupervisor, sandbox: Sandbox) -> Terminal:
    begin(supervisor, PROCESSES)
    return sandbox.processes.pty()


@pytest.mark.parametrize("opened", [watching, typing_at])
def test_a_stream_that_has_ended_says_why_whenever_it_is_asked(
    supervisor: FakeSupervisor,
    sandbox: Sandbox,
    asleep: Callable[[], None],
    opened: Callable[[FakeSupervisor, Sandbox], Watch | Terminal],
) -> None:
    def take(stream: Watch | Terminal) -> object:
        return stream.next() if isinstance(stream, Watch) else stream.receive()

    closed = opened(supervisor, sandbox)
    closed.close()
    with pytest.raises(StateError, match="this program closed"):
        take(closed)
    slept = opened(supervisor, sandbox)
    asleep()
    with pytest.raises(StateError, match="was suspended by another client"):
        take(slept)
    with pytest.raises(
        StateError, match="the stream has ended: sandbox alice was suspended by another client"
    ):
        take(slept)


def test_a_wait_that_is_aborted_ends_at_once(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    watch = watching(supervisor, sandbox)
    threading.Timer(0.1, watch.abort).start()
    with pytest.raises(StateError, match="this program aborted"):
        watch.next()
    assert supervisor.api.requests.count(INFO) == 0, "nobody is asked why, which would take a while"
