"""Calls that make sandboxes and are stopped before they have them."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.unit.sdk.fakes import SANDBOX_ID, FakeSupervisor, Handler, info

from atoll import AsyncSandbox, Sandbox, Wait
from atoll.protocol import REQUEST_HEADER
from atoll.types import Progress

CREATE = ("POST", "/v1/sandboxes")
FORK = ("POST", f"/v1/sandboxes/{SANDBOX_ID}/fork")


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Ctrl-C as it is in a foreground process."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Tokens:
    """What requests were named, and what an undoing answers."""

    def __init__(self, supervisor: FakeSupervisor) -> None:
        self.sent: list[str | None] = []
        self._supervisor = supervisor

    def noting(self, then: Callable[[Handler], None]) -> Callable[[Handler], None]:
        def route(handler: Handler) -> None:
            token = handler.headers[REQUEST_HEADER]
            self.sent.append(token)
            self._supervisor.api.routes["DELETE", f"/v1/requests/{token}"] = Handler.send_nothing
            then(handler)

        return route

    @property
    def undone(self) -> list[str]:
        paths = [path for method, path in self._supervisor.api.requests if method == "DELETE"]
        return [path.removeprefix("/v1/requests/") for path in paths if path.startswith("/v1/requests/")]


@pytest.fixture
def tokens(supervisor: FakeSupervisor) -> Tokens:
    return Tokens(supervisor)


def press_ctrl_c(handler: Handler) -> None:
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)
    handler.connection.recv(1)


def test_ctrl_c_in_the_middle_of_a_create_undoes_it(supervisor: FakeSupervisor, tokens: Tokens) -> None:
    supervisor.api.routes[CREATE] = tokens.noting(press_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        Sandbox.create()
    assert tokens.undone == tokens.sent


def test_ctrl_c_in_the_middle_of_a_fork_undoes_it(
    supervisor: FakeSupervisor, sandbox: Sandbox, tokens: Tokens
) -> None:
    supervisor.api.routes[FORK] = tokens.noting(press_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        sandbox.fork(3)
    assert tokens.undone == tokens.sent
    assert sandbox.info().state == "running"


def test_a_cancelled_create_or_fork_undoes_it_before_it_ends(
    supervisor: FakeSupervisor, tokens: Tokens
) -> None:
    has_come, may_end = threading.Event(), threading.Event()

    def wait(_: Handler) -> None:
        has_come.set()
        may_end.wait(60)

    async def main() -> None:
        async with await AsyncSandbox.create() as sandbox:
            supervisor.api.routes[CREATE] = supervisor.api.routes[FORK] = tokens.noting(wait)
            for call in (lambda: AsyncSandbox.create(name="leak"), lambda: sandbox.fork(2)):
                has_come.clear()
                task = asyncio.ensure_future(call())
                await asyncio.to_thread(has_come.wait, 60)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert tokens.undone == tokens.sent
        may_end.set()

    asyncio.run(main())
    assert len(tokens.sent) == 2


def test_a_callback_that_fails_undoes_the_create(supervisor: FakeSupervisor, tokens: Tokens) -> None:
    def build(handler: Handler) -> None:
        handler.begin_stream()
        handler.chunk(b'{"progress": {"step": "unpack"}}\n')

    def fail(_: Progress) -> None:
        raise ZeroDivisionError

    supervisor.api.routes[CREATE] = tokens.noting(build)
    with pytest.raises(ZeroDivisionError):
        Sandbox.create(wait=Wait(on_progress=fail))
    assert tokens.undone == tokens.sent


def test_a_streamed_answer_is_read_to_its_end(supervisor: FakeSupervisor, tokens: Tokens) -> None:
    # whoever closes its connection before that has not received it
    def build(handler: Handler) -> None:
        handler.begin_stream()
        handler.chunk(b'{"result": %b}\n' % json.dumps(info()).encode())
        handler.chunk(b"")

    supervisor.api.routes[CREATE] = tokens.noting(build)
    # Not by `with`, whose hold has a connection of its own.
    sandbox = Sandbox.create(wait=Wait(on_progress=lambda _: None))
    connections = len(supervisor.api.connections)
    sandbox.info()
    assert len(supervisor.api.connections) == connections
    sandbox.kill()
    assert tokens.undone == []


def test_a_supervisor_that_is_gone_is_not_started_to_undo_anything(supervisor: FakeSupervisor) -> None:
    def end(handler: Handler) -> None:
        supervisor.home.api_socket.unlink()
        handler.cut()

    supervisor.api.routes[CREATE] = end
    with pytest.raises(Exception, match="ended"):
        Sandbox.create()
    assert not supervisor.home.log.exists()
