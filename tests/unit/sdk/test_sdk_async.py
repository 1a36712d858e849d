from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest
from tests.unit.sdk.fakes import SANDBOX_ID, FakeSupervisor, Handler, info, process, sent

from atoll import AsyncSandbox
from atoll.errors import StateError

PROCESSES = ("POST", "/atoll/processes")
SIGNAL = ("POST", "/atoll/processes/7/signal")


def run(work: Callable[[AsyncSandbox], Awaitable[None]]) -> None:
    async def main() -> None:
        with anyio.fail_after(120):
            async with await AsyncSandbox.create() as sandbox:
                await work(sandbox)

    anyio.run(main)


def test_a_cancelled_call_kills_its_program_and_leaves_the_sandbox(supervisor: FakeSupervisor) -> None:
    started, killed = threading.Event(), threading.Event()

    def endless(handler: Handler) -> None:
        handler.begin_stream()
        handler.frames(("s", {"pid": 7}), ("o", b"1"))
        started.set()
        killed.wait(60)
        handler.close_connection = True

    def kill(handler: Handler) -> None:
        assert sent(handler) == {"signal": 9}
        killed.set()
        handler.send_nothing()

    supervisor.agent.routes[PROCESSES] = endless
    supervisor.agent.routes[SIGNAL] = kill

    async def work(sandbox: AsyncSandbox) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(sandbox.run, "sleep inf")
            await anyio.to_thread.run_sync(started.wait, 60)
            group.cancel_scope.cancel()
        assert killed.is_set()
        supervisor.agent.routes[PROCESSES] = process(("o", b"alive"))
        assert (await sandbox.run("echo alive")).stdout == "alive"

    run(work)


def test_calls_at_once_do_not_wait_for_each_other(supervisor: FakeSupervisor) -> None:
    meeting = threading.Barrier(8)

    def meet(handler: Handler) -> None:
        meeting.wait(60)
        process(("o", sent(handler)["line"].encode()))(handler)

    supervisor.agent.routes[PROCESSES] = meet

    async def work(sandbox: AsyncSandbox) -> None:
        got = []

        async def one(line: str) -> None:
            got.append((await sandbox.run(line)).stdout)

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(one, str(number))
        assert sorted(got) == [str(number) for number in range(8)]

    run(work)


def test_input_may_come_from_an_async_iterable_and_output_go_to_a_coroutine(
    supervisor: FakeSupervisor,
) -> None:
    read = threading.Event()

    def cat(handler: Handler) -> None:
        handler.begin_stream()
        handler.frames(("s", {"pid": 7}), ("o", b"out"))
        read.wait(60)
        handler.frames(("x", {"exit_code": 0}))
        handler.chunk(b"")

    got = []
    supervisor.agent.routes[PROCESSES] = cat
    supervisor.agent.routes["POST", "/atoll/processes/7/stdin"] = lambda handler: (
        got.append(handler.body),
        handler.send_nothing(),
        read.set(),
    )

    async def source() -> AsyncIterator[str | bytes]:
        yield "a"
        await anyio.lowlevel.checkpoint()
        yield b"b"

    async def work(sandbox: AsyncSandbox) -> None:
        async def keep(text: str) -> None:
            await anyio.lowlevel.checkpoint()
            got.append(text)

        await sandbox.run("cat", stdin=source(), on_stdout=keep)

    run(work)
    assert sorted(map(str, got)) == ["b'ab'", "out"]


def test_a_sandbox_that_was_put_to_sleep_says_so_to_a_waiting_call(supervisor: FakeSupervisor) -> None:
    supervisor.api.routes["GET", f"/v1/sandboxes/{SANDBOX_ID}"] = info(state="suspended")

    def sleep(handler: Handler) -> None:
        handler.begin_stream()
        handler.frames(("s", {"pid": 7}))
        handler.cut()

    supervisor.agent.routes[PROCESSES] = sleep

    async def work(sandbox: AsyncSandbox) -> None:
        with pytest.raises(StateError, match="suspended"):
            await sandbox.run("make")

    run(work)


def test_files_stream_in_both_directions(supervisor: FakeSupervisor) -> None:
    content = bytes(range(256)) * 2000
    kept = {}
    row = {
        "name": "a",
        "path": "/a",
        "kind": "file",
        "size_bytes": 1,
        "mode": 420,
        "owner": "u",
        "group": "u",
    }

    def put(handler: Handler) -> None:
        kept[handler.path] = handler.body
        handler.send_json({"file": {**row, "modified_at": 1.0}})

    def get(handler: Handler) -> None:
        handler.begin_stream()
        for at in range(0, len(content), 100_000):
            handler.chunk(content[at : at + 100_000])
        handler.chunk(b"")

    supervisor.agent.routes["PUT", "/atoll/file"] = put
    supervisor.agent.routes["GET", "/atoll/file"] = get

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(content), 70_000):
            yield content[at : at + 70_000]

    async def work(sandbox: AsyncSandbox) -> None:
        assert (await sandbox.files.write("a", pieces(), mode=0o600)).name == "a"
        assert await sandbox.files.read_bytes("a") == content
        assert b"".join([piece async for piece in sandbox.files.read_stream("a")]) == content

    run(work)
    assert kept == {"/atoll/file?path=a&mode=600": content}
