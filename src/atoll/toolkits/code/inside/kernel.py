"""One kernel of Jupyter, which runs code in one language and remembers its variables."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import signal
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager

from .results import Line, line_of

GRACE_S = 5.0
_READY_S = 60.0
_LOOK_S = 0.5
_END_S = 5.0
_STEP_S = 0.01
_ENDED = "the kernel ended, and its variables are gone; the next run starts another one"
_STUBBORN = (
    "the code went on for {:g} s after it was interrupted, so its kernel was killed, and its variables are gone; "
    "the next run starts another one"
)


class KernelDiedError(Exception):
    """The kernel ended during a run. The next run starts it again, without its variables. The message says why."""


class Kernel:
    """Starts a kernel and talks to it. One execution runs at a time; others wait.

    Args:
        spec: The name of the kernel's specification.
        cwd: The directory in which it starts.
        grace_s: Seconds that a run may continue after an interruption. Then it is killed with the kernel.

    Attributes:
        lost: Why its variables are gone, until somebody has been told; empty if they are not.
    """

    def __init__(self, spec: str, cwd: str, grace_s: float) -> None:
        self._manager = AsyncKernelManager(kernel_name=spec)
        self._cwd = cwd
        self._grace_s = grace_s
        self._client: AsyncKernelClient | None = None
        self._turn = asyncio.Lock()
        self._starting = asyncio.Lock()
        self._begun = asyncio.Event()
        self._interrupted_at: float | None = None
        self.lost = ""

    async def start(self) -> None:
        """Start it and wait until it answers."""
        await self._manager.start_kernel(cwd=self._cwd)
        await self._connect()

    async def restart(self) -> None:
        """Restart it, without its variables. Programs that it had started end, too."""
        async with self._starting:
            await self._start_anew()

    async def interrupt(self) -> None:
        """Interrupt its code, as Ctrl-C does; its variables stay.

        Code that still runs when its grace is over is killed with the kernel.
        """
        if self._client is None:
            return
        if self._turn.locked():
            with contextlib.suppress(TimeoutError):  # before the code begins, the kernel would miss it
                await asyncio.wait_for(self._begun.wait(), _LOOK_S)
            if self._interrupted_at is None:
                self._interrupted_at = time.monotonic()
        await self._manager.interrupt_kernel()

    async def stop(self) -> None:
        """End it."""
        self._disconnect()
        await self._kill()
        with contextlib.suppress(Exception):  # it may have ended before
            await asyncio.wait_for(self._manager.shutdown_kernel(now=True), _END_S)

    async def execute(
        self, code: str, *, prepare: Callable[[], str] | None = None, counted: bool = True
    ) -> AsyncGenerator[Line]:
        """Run code and yield its lines, until the kernel is idle again.

        Closing the iteration early interrupts the code, and waits until it has ended.

        Args:
            code: The code.
            prepare: Returns code to run first, whose lines nobody sees. It is called when this run's turn
                comes.
            counted: Whether it counts as a run of the context, and is in its history.

        Raises:
            KernelDiedError: The kernel ended meanwhile. The next run starts it again.
        """
        async with self._turn:
            async with self._starting:
                if self._client is None:
                    await self._start_anew()
            before = "" if prepare is None else prepare()
            if before:
                async with contextlib.aclosing(self._run(before, counted=False)) as unseen:
                    async for _ in unseen:
                        continue
            async with contextlib.aclosing(self._run(code, counted=counted)) as lines:
                async for line in lines:
                    yield line

    async def quietly(self, code: str) -> None:
        """Run code whose lines nobody sees."""
        async for _ in self.execute(code, counted=False):
            continue

    async def _run(self, code: str, *, counted: bool) -> AsyncGenerator[Line]:
        client = self._client
        if client is None:  # the code before this ended it
            raise KernelDiedError(self.lost)
        self._begun.clear()
        self._interrupted_at = None
        asked = client.execute(code, silent=False, store_history=counted, allow_stdin=False)
        over = False
        try:
            while (message := await self._message(client, asked)) is not None:
                line = line_of(*message)
                if line is not None:
                    yield line
            over = True
        except KernelDiedError:
            over = True
            raise
        finally:
            if not over:
                await self._halt(client, asked)
            if client is self._client:
                with contextlib.suppress(queue.Empty):  # the answer says nothing more, and must not pile up
                    await client.get_shell_msg(timeout=_LOOK_S)

    async def _halt(self, client: AsyncKernelClient, asked: str) -> None:
        """Interrupt a run that nobody follows any more, and wait for its end."""
        with contextlib.suppress(KernelDiedError):
            await self.interrupt()
            while await self._message(client, asked) is not None:
                continue

    async def _message(self, client: AsyncKernelClient, asked: str) -> tuple[str, dict[str, Any]] | None:
        """Return the kernel's next message about a run; None if the run has ended.

        Raises:
            KernelDiedError: The kernel has ended, was killed, or is another one.
        """
        while client is self._client:
            if self._interrupted_at is not None and time.monotonic() > self._interrupted_at + self._grace_s:
                await self._kill()
                raise self._died(client, _STUBBORN.format(self._grace_s))
            try:
                message: dict[str, Any] = await client.get_iopub_msg(timeout=_LOOK_S)
            except queue.Empty:
                if not await self._manager.is_alive():
                    break
                continue
            if message["parent_header"].get("msg_id") != asked:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return None
            if kind == "execute_input":
                self._begun.set()
            return kind, content
        raise self._died(client, _ENDED)

    def _died(self, client: AsyncKernelClient, why: str) -> KernelDiedError:
        self.lost = why
        if client is self._client:
            self._disconnect()
        return KernelDiedError(why)

    async def _kill(self) -> None:
        """Kill it with all of its descendants that still belong to it, and wait for their end."""
        pid = getattr(self._manager.provisioner, "pid", None)
        if pid is not None and await self._manager.is_alive():  # otherwise the number may be reused
            killed = [pid, *await asyncio.to_thread(_descendants, pid)]
            for each in killed:
                with contextlib.suppress(OSError):
                    os.kill(each, signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    while any(map(_runs, killed)):  # noqa: ASYNC110  # no event tells of it
                        await asyncio.sleep(_STEP_S)

    async def _start_anew(self) -> None:
        self._disconnect()
        await self._kill()
        await self._manager.restart_kernel(now=True)
        await self._connect()

    async def _connect(self) -> None:
        client: AsyncKernelClient = self._manager.client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=_READY_S)
        except BaseException:
            client.stop_channels()
            raise
        self._client = client

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.stop_channels()
            self._client = None


def _descendants(pid: int) -> list[int]:
    """Return the children of a process, and their own, parents first."""
    children: dict[int, list[int]] = {}
    for text in os.listdir("/proc"):
        if text.isdigit():
            with contextlib.suppress(OSError):
                _, parent = _state_and_parent(int(text))
                children.setdefault(parent, []).append(int(text))
    found = list(children.get(pid, ()))
    for each in found:
        found += children.get(each, ())
    return found


def _runs(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    with contextlib.suppress(OSError):
        state, _ = _state_and_parent(pid)
        return state not in {"Z", "X"}
    return False


def _state_and_parent(pid: int) -> tuple[str, int]:
    with open(f"/proc/{pid}/stat", "rb") as file:  # a program may have any bytes for a name
        state, parent = file.read().rpartition(b")")[2].split()[:2]
    return state.decode(), int(parent)
