"""One kernel of Jupyter, which runs code in one language and remembers its variables."""

from __future__ import annotations

import asyncio
import contextlib
import queue
from collections.abc import AsyncIterator
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager

from .results import Line, line_of

_READY_S = 60.0
_LOOK_S = 1.0
_END_S = 5.0


class KernelDiedError(Exception):
    """The kernel ended during a run. It is there again, without its variables."""


class Kernel:
    """Starts a kernel and talks to it. One execution runs at a time; others wait.

    Args:
        spec: The name of the kernel's specification.
        cwd: The directory in which it starts.
    """

    def __init__(self, spec: str, cwd: str) -> None:
        self._manager = AsyncKernelManager(kernel_name=spec)
        self._cwd = cwd
        self._client: AsyncKernelClient | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Start it and wait until it answers."""
        await self._manager.start_kernel(cwd=self._cwd)
        await self._connect()

    async def restart(self) -> None:
        """Start it anew, without its variables."""
        self._disconnect()
        await self._manager.restart_kernel(now=True)
        await self._connect()

    async def interrupt(self) -> None:
        """Stop what it runs, as Ctrl-C does; its variables stay."""
        await self._manager.interrupt_kernel()

    async def stop(self) -> None:
        """End it."""
        self._disconnect()
        with contextlib.suppress(Exception):  # it may have ended before
            await asyncio.wait_for(self._manager.shutdown_kernel(now=True), _END_S)

    async def execute(self, code: str, *, counted: bool = True) -> AsyncIterator[Line]:
        """Run code and yield what comes of it, until the kernel is idle again.

        Args:
            code: The code.
            counted: Whether it counts as a run of the context, and is in its history.

        Raises:
            KernelDiedError: The kernel ended meanwhile, and was started again.
        """
        async with self._turn:
            client = self._client
            if client is None:
                await self._revive()
                raise KernelDiedError
            asked = client.execute(code, silent=False, store_history=counted, allow_stdin=False)
            while True:
                message = await self._message(client)
                if message is None:
                    await self._revive()
                    raise KernelDiedError
                if message["parent_header"].get("msg_id") != asked:
                    continue
                kind, content = message["msg_type"], message["content"]
                if kind == "status" and content["execution_state"] == "idle":
                    break
                line = line_of(kind, content)
                if line is not None:
                    yield line
            with contextlib.suppress(queue.Empty):  # the answer says nothing more, and must not pile up
                await client.get_shell_msg(timeout=_LOOK_S)

    async def quietly(self, code: str) -> None:
        """Run code of which nobody sees anything."""
        async for _ in self.execute(code, counted=False):
            continue

    async def _message(self, client: AsyncKernelClient) -> dict[str, Any] | None:
        """Return what the kernel says next; None if it has ended, or is another one."""
        while client is self._client:
            try:
                message: dict[str, Any] = await client.get_iopub_msg(timeout=_LOOK_S)
                return message
            except queue.Empty:
                if not await self._manager.is_alive():
                    return None
        return None

    async def _revive(self) -> None:
        if self._client is None or not await self._manager.is_alive():
            await self.restart()

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
