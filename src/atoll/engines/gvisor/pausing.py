"""Pauses a guest whose kernel is too busy to pause it, by freezing its cgroup."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from atoll.engines.gvisor.control import ControlSocket
from atoll.errors import EngineError
from atoll.host import Cgroup, to_the_end

_PAUSE_TIMEOUT_S = 300.0
_PAUSE, _RESUME = "containerManager.Pause", "containerManager.Resume"


class PausingControl(ControlSocket):
    """The control socket of a sentry that the host may have frozen.

    A frozen sentry answers nothing, so a call thaws it first and has it pause its guest. That takes as long
    as the guest keeps the sentry busy, and the guest runs until then.

    Args:
        path: The socket's path.
        cgroup: The cgroup of its processes. None where this host has no cgroups: then nothing is ever frozen.
    """

    def __init__(self, path: Path, cgroup: Cgroup | None) -> None:
        super().__init__(path)
        self._cgroup = cgroup
        self._thawing = asyncio.Lock()

    async def pause(self, *, within_s: float | None = None) -> None:
        """Pause the guest; see ``Machine.pause``.

        Raises:
            EngineError: The sentry is gone, or cannot be frozen.
        """
        if self._cgroup is not None and self._cgroup.is_frozen():
            return  # by another process: the next call thaws it and has it pause its guest
        asked = asyncio.ensure_future(self.call(_PAUSE, _now(), timeout_s=_PAUSE_TIMEOUT_S))
        try:
            if self._cgroup is not None:
                await asyncio.wait({asked}, timeout=within_s)
                if not asked.done() and await self._freeze(self._cgroup):
                    return
            await asked
        finally:
            # The sentry still pauses the guest when it gets to it, unless it is asked to resume it first.
            asked.cancel()

    async def resume(self) -> None:
        """Resume the guest; see ``Machine.resume``.

        Raises:
            EngineError: The sentry is gone.
        """
        # Not by ``call``: the resume must be later than the pause that a thaw asks for.
        await self._thaw()
        await super().call(_RESUME, _now())

    async def call(
        self, method: str, arg: object = None, *, fds: Sequence[int] = (), timeout_s: float | None = 60.0
    ) -> Any:
        """See ``ControlSocket.call``."""
        await self._thaw()
        return await super().call(method, arg, fds=fds, timeout_s=timeout_s)

    @staticmethod
    async def _freeze(cgroup: Cgroup) -> bool:
        try:
            return await to_the_end(asyncio.to_thread(cgroup.freeze))
        except OSError as error:
            raise EngineError(f"the processes cannot be frozen: {error}") from error

    async def _thaw(self) -> None:
        if self._cgroup is None:
            return
        async with self._thawing:
            # Ask the host, because another supervisor may have frozen it.
            if self._cgroup.is_frozen():
                self._cgroup.thaw()
                await super().call(_PAUSE, _now(), timeout_s=_PAUSE_TIMEOUT_S)


def _now() -> dict[str, int]:
    return {"Asked": time.monotonic_ns()}
