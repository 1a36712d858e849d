"""The sandboxes that the clients of one server work with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup, TaskStatus

from atoll.errors import InvalidSpecError, NameTakenError, SandboxNotFoundError, StateError
from atoll.mcp.defaults import Defaults
from atoll.sdk import AsyncSandbox
from atoll.types import Lifecycle, Progress, SandboxInfo, Wait
from atoll.types.internal import check_number, one_source

IDLE_S = 1800.0
MOST_FORWARDS = 64
_MADE_HERE = {"made-by": "atoll mcp"}


class Workplace:
    """Finds the sandbox that a call means, and makes the default one when it is first used.

    It is a context. Leaving it closes connections and forwarded ports; the sandboxes stay.

    Args:
        defaults: The operator's settings.
    """

    def __init__(self, defaults: Defaults) -> None:
        self.defaults = defaults
        self.current = defaults.sandbox
        self._making = anyio.Lock()
        self._open: dict[str, AsyncSandbox] = {}
        self._forwards: dict[tuple[str, int], tuple[int, anyio.CancelScope]] = {}
        self._group: TaskGroup = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._group.cancel_scope.cancel()
        try:
            await self._group.__aexit__(*error)
        finally:
            for sandbox in self._open.values():
                sandbox.close()
            self._open.clear()

    async def sandbox(
        self,
        id_or_name: str | None = None,
        *,
        busy_s: float = 0.0,
        on_progress: Callable[[Progress], Any] | None = None,
    ) -> AsyncSandbox:
        """Return a sandbox. Its first use wakes it.

        Args:
            id_or_name: Its id or name; None means the current one. If the default one is missing, this makes
                it.
            busy_s: Seconds that the call will use it; its lease does not end meanwhile.
            on_progress: Called while an image is built or pulled for it.

        Raises:
            SandboxNotFoundError: No sandbox has that id or name.
        """
        wanted = id_or_name or self.current
        try:
            return await self._found(wanted, busy_s)
        except SandboxNotFoundError:
            if wanted != self.defaults.sandbox:
                raise
        async with self._making:
            try:
                return await self._found(wanted, busy_s)
            except SandboxNotFoundError:
                pass
            try:
                return await self.create(wanted, on_progress=on_progress)
            except NameTakenError:  # another server of this home was faster
                return await self._found(wanted, busy_s)

    async def create(
        self,
        name: str | None,
        image: str | None = None,
        template: str | None = None,
        *,
        on_progress: Callable[[Progress], Any] | None = None,
    ) -> AsyncSandbox:
        """Make a sandbox that stays. It sleeps half an hour after its last use, and the next use wakes it.

        Without an image and a template, it takes the operator's.
        """
        if image is None and template is None:
            image, template = self.defaults.image, self.defaults.template
        sandbox = await AsyncSandbox.create(
            one_source(image=image, template=template),
            name=name,
            network=self.defaults.network,
            lifecycle=Lifecycle(ttl_s=IDLE_S, on_expiry="suspend"),
            metadata=_MADE_HERE,
            keep=True,
            wait=Wait(on_progress=on_progress),
        )
        return self.known(sandbox)

    def known(self, sandbox: AsyncSandbox) -> AsyncSandbox:
        """Return the open handle on a sandbox. The given one becomes it if there is none yet."""
        kept = self._open.setdefault(sandbox.id, sandbox)
        if kept is not sandbox:
            sandbox.close()
        return kept

    async def kill(self, id_or_name: str) -> AsyncSandbox:
        """End a sandbox and erase it.

        Raises:
            SandboxNotFoundError: No sandbox has that id or name.
        """
        sandbox = await self._found(id_or_name, 0.0)
        await sandbox.kill()
        self.forget(sandbox)
        return sandbox

    def forget(self, sandbox: AsyncSandbox) -> None:
        """Forget a sandbox that is gone."""
        for key in [key for key in self._forwards if key[0] == sandbox.id]:
            self._forwards.pop(key)[1].cancel()
        self._open.pop(sandbox.id, sandbox).close()
        if self.current in (sandbox.id, sandbox.name):
            self.current = self.defaults.sandbox

    async def url(self, sandbox: AsyncSandbox, port: int) -> str:
        """Forward a port of this machine to a port inside, for as long as the server runs, and return its address.

        Raises:
            InvalidSpecError: It is no port, or too many are forwarded.
        """
        check_number("port", port, least=1, most=65535, whole=True, hint="give 1 to 65535")
        known = self._forwards.get((sandbox.id, port))
        if known is None:
            if len(self._forwards) >= MOST_FORWARDS:
                raise InvalidSpecError(
                    f"{MOST_FORWARDS} ports are forwarded already", hint="kill a sandbox that is not needed"
                )
            known = await self._group.start(self._forward, sandbox, port)
            self._forwards[sandbox.id, port] = known
        return f"http://127.0.0.1:{known[0]}"

    async def _forward(
        self, sandbox: AsyncSandbox, port: int, *, task_status: TaskStatus[tuple[int, anyio.CancelScope]]
    ) -> None:
        with anyio.CancelScope() as scope:
            async with sandbox.ports.forward(port) as forward:
                task_status.started((forward.port, scope))
                await anyio.sleep_forever()

    async def _found(self, id_or_name: str, busy_s: float) -> AsyncSandbox:
        info = await AsyncSandbox.get(id_or_name)
        sandbox = self.known(AsyncSandbox.of(info))
        if self._is_leased(info):
            try:
                await sandbox.set_lease(busy_s + IDLE_S, extend_only=True)
            except StateError:  # it fell asleep just now, and its next use begins a lease
                return sandbox
        return sandbox

    def _is_leased(self, info: SandboxInfo) -> bool:
        return info.state == "running" and _MADE_HERE.items() <= info.metadata.items()
