"""Pauses a guest whose kernel is too busy to pause it, by freezing its cgroup."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from atoll.engines.gvisor.control import ControlSocket, PendingCallError
from atoll.engines.gvisor.waits import CALL_S, PAUSE_S, RESUME_S
from atoll.errors import EngineError
from atoll.host import Cgroup, to_the_end

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
            UnresponsiveError: The guest's kernel does not pause it.
        """
        if self._cgroup is not None and self._cgroup.is_frozen():
            return  # by another process: the next call thaws it and has it pause its guest
        asked = asyncio.ensure_future(self.call(_PAUSE, _now(), timeout_s=PAUSE_S))
        try:
            if self._cgroup is not None:
                await asyncio.wait({asked}, timeout=within_s)
                if not asked.done() and await self._freeze(self._cgroup):
                    return
            await asked
        finally:
            # The sentry pauses the guest later all the same, unless a request to resume comes first.
            asked.cancel()

    async def resume(self) -> None:
        """Resume the guest; see ``Machine.resume``.

        Raises:
            EngineError: The sentry is gone.
            UnresponsiveError: The guest's kernel does not answer.
        """
        async with self._thawing:
            # Do not use ``call`` here: a pause that the sentry still owes is older than this, so it no longer
            # counts.
            if self._cgroup is not None and self._cgroup.is_frozen():
                self._cgroup.thaw()
            # A sentry that has not paused its guest yet resumes it right after the pause: no caller has to
            # wait for that.
            with contextlib.suppress(PendingCallError):
                await super().call(_RESUME, _now(), timeout_s=RESUME_S)

    async def call(
        self, method: str, arg: object = None, *, fds: Sequence[int] = (), timeout_s: float = CALL_S
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
                try:
                    await super().call(_PAUSE, _now(), timeout_s=PAUSE_S)
                except BaseException:
                    await self._freeze(self._cgroup)  # it stays paused
                    raise


def _now() -> dict[str, int]:
    return {"Asked": time.monotonic_ns()}
