from __future__ import annotations

import pytest
from tests.unit.sdk.fakes import FakeSupervisor, Handler, info, sent

from atoll import Sandbox
from atoll.errors import InvalidSpecError, ProcessNotFoundError, StateError
from atoll.types import TerminalSize

PROCESSES = ("GET", "/atoll/processes")
OUTPUT = ("GET", "/atoll/processes/7/output")
RESIZE = ("POST", "/atoll/processes/7/resize")


@pytest.fixture
def sizes(supervisor: FakeSupervisor) -> list[object]:
    """What a terminal is told of its size; there is one with pid 7, and a program without one, 8."""
    told: list[object] = []

    def resized(handler: Handler) -> None:
        told.append(sent(handler))
        handler.send_nothing()

    supervisor.agent.routes[PROCESSES] = {
        "processes": [{"pid": 7, "pty": {"cols": 80, "rows": 24}}, {"pid": 8}]
    }
    supervisor.agent.routes[RESIZE] = resized
    return told


def telling(*frames: tuple[str, object], kept: int | None = None) -> object:
    """A route that follows program 7."""

    def route(handler: Handler) -> None:
        handler.begin_stream()
        handler.frames(("s", {"pid": 7} if kept is None else {"pid": 7, "kept": kept}), *frames)
        if frames and frames[-1][0] == "x":
            handler.chunk(b"")

    return route


@pytest.mark.parametrize(("kept", "known"), [(None, 0), (6, 6), (1 << 62, 4 << 20)])
def test_a_terminal_is_gone_on_with_and_knows_what_is_old(
    supervisor: FakeSupervisor, sandbox: Sandbox, sizes: list[object], kept: int | None, known: int
) -> None:
    supervisor.agent.routes[OUTPUT] = telling(
        ("t", b"before"), ("t", b"now"), ("x", {"exit_code": 3}), kept=kept
    )
    with sandbox.processes.attach_terminal(7, size=TerminalSize(cols=100, rows=30)) as terminal:
        assert (terminal.pid, terminal.kept_bytes) == (7, known)
        assert b"".join(terminal) == b"beforenow"
        assert terminal.wait().exit_code == 3
    assert sizes == [{"cols": 100, "rows": 30}]


def test_leaving_it_leaves_the_program_alone(
    supervisor: FakeSupervisor, sandbox: Sandbox, sizes: list[object]
) -> None:
    supervisor.agent.routes[OUTPUT] = telling(("t", b"$ "))
    with sandbox.processes.attach_terminal(7) as terminal:
        assert terminal.receive() == b"$ "
    assert sizes == []
    assert not any(path.endswith("/signal") for _, path in supervisor.agent.requests)


def test_a_program_without_a_terminal_or_none_at_all_is_said_to_be_that(
    supervisor: FakeSupervisor, sandbox: Sandbox, sizes: list[object]
) -> None:
    del sizes
    with pytest.raises(InvalidSpecError, match="pid 8 has no terminal"):
        sandbox.processes.attach_terminal(8)
    supervisor.agent.routes["GET", "/atoll/processes/9/output"] = lambda handler: handler.send_json(
        {"code": "process_not_found", "message": "process with pid 9 not found"}, 404
    )
    with pytest.raises(ProcessNotFoundError):
        sandbox.processes.attach_terminal(9)


def test_a_sandbox_that_falls_asleep_ends_it_with_an_error(
    supervisor: FakeSupervisor, sandbox: Sandbox, sizes: list[object]
) -> None:
    del sizes
    supervisor.agent.routes[OUTPUT] = telling(("t", b"$ "))
    with sandbox.processes.attach_terminal(7) as terminal:
        assert terminal.receive() == b"$ "
        supervisor.api.routes["GET", f"/v1/sandboxes/{sandbox.id}"] = info(state="suspended")
        supervisor.agent.cut_all()
        with pytest.raises(StateError, match="was suspended by another client"):
            terminal.receive()
