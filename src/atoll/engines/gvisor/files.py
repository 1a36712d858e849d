"""How a machine reaches the files of the host: through its gofer, which can be another one after a while."""

from __future__ import annotations

import asyncio

from atoll.engines.gvisor.control import ControlSocket
from atoll.engines.gvisor.processes import HostProcess, end_processes
from atoll.host import to_the_end

# What is deleted but open is read.
_TIMEOUT_S = 120.0


class Files:
    """The files of one machine.

    Args:
        control: Its control socket.
        gofer: The process that serves them; None when it has ended.
    """

    def __init__(self, control: ControlSocket, gofer: HostProcess | None) -> None:
        self.gofer = gofer
        self._control = control
        self._attached = asyncio.Event()
        self._attached.set()

    async def detach(self) -> None:
        """See ``Engine.detach_files``."""
        self._attached.clear()
        await self._control.call("containerManager.DetachFiles", timeout_s=_TIMEOUT_S)
        # Its mount namespace has the root too. It would wait for the sentry's end.
        if self.gofer is not None:
            await to_the_end(end_processes([self.gofer]))

    def attached(self, gofer: HostProcess | None) -> None:
        """Note who serves them from now on; None when nobody does, and the machine is of no use."""
        self.gofer = gofer
        self._attached.set()

    async def are_lost(self, gofer: HostProcess) -> bool:
        """Whether nobody serves them: to be asked when this gofer, or the sentry, has ended."""
        await self._attached.wait()
        return self.gofer is gofer

    def close(self) -> None:
        """Let nobody wait any more."""
        self._attached.set()
