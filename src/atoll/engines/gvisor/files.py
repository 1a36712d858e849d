"""A machine's access to the host's files, through its gofer, which may be replaced."""

from __future__ import annotations

import asyncio

from atoll.engines.gvisor.control import ControlSocket
from atoll.engines.gvisor.processes import HostProcess, end_processes
from atoll.host import to_the_end

# Files that are deleted but open are read during this time.
_TIMEOUT_S = 120.0


class Files:
    """Tracks the gofer that serves a machine's files.

    Args:
        control: The machine's control socket.
        gofer: The process that serves the files; None if it has ended.
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
        # The gofer's mount namespace has the root too. The gofer would otherwise run until the sentry ends.
        if self.gofer is not None:
            await to_the_end(end_processes([self.gofer]))

    def attached(self, gofer: HostProcess | None) -> None:
        """Note which gofer serves the files from now on.

        None means that no gofer does, and the machine is unusable.
        """
        self.gofer = gofer
        self._attached.set()

    async def are_lost(self, gofer: HostProcess) -> bool:
        """Whether no gofer serves the files. Ask when this gofer, or the sentry, has ended."""
        await self._attached.wait()
        return self.gofer is gofer

    def close(self) -> None:
        """Release all waiting tasks."""
        self._attached.set()
