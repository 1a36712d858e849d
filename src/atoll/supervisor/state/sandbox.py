"""A sandbox of this supervisor, and the reasons why one crashes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from atoll.engines import MemoryReadings
from atoll.errors import InternalError
from atoll.supervisor.state.idleness import Idleness
from atoll.supervisor.state.locks import SandboxLock
from atoll.supervisor.state.rows import SandboxRow
from atoll.types import Recovery, SandboxInfo, SandboxState, Unplugged

if TYPE_CHECKING:
    from atoll.network import Link
    from atoll.supervisor.state.running_machine import RunningMachine

CRASH_REASON = "its processes ended unexpectedly"


def memory_reason(limit_mib: int | None) -> str:
    """The reason of a sandbox that ended because it used too much memory; None means the default limit."""
    limit = (
        "the default memory limit, half of the host's"
        if limit_mib is None
        else f"its memory limit of {limit_mib} MiB"
    )
    return f"it used more memory than {limit}"


def crash_reason(row: SandboxRow, running: RunningMachine) -> str:
    """The reason why a machine ended, if it was not ended on purpose."""
    if running.reason is not None:
        return running.reason
    machine = running.machine
    if isinstance(machine, MemoryReadings) and machine.hit_memory_limit():
        return memory_reason(row.limits.memory_mib)
    return CRASH_REASON


def with_losses(row: SandboxRow, why: str) -> str:
    """The reason of a crash, with the losses."""
    if not row.engine_disk:
        return why
    return f"{why}; the engine kept its disk, so all changes since its last suspend or snapshot are lost"


@dataclass(eq=False, repr=False)
class Sandbox:
    """A sandbox of this supervisor. Every change of its state takes ``lock``.

    ``running`` is set while it runs or is paused, ``link`` while it is suspended and keeps its connections.
    ``unplugging`` is set, without the lock, while it is being unplugged and its row does not say so yet.
    ``untold`` is a recovery without a use, until the next use learns of it.
    ``dialled`` means that a client has connected to it under this supervisor.
    ``holders`` counts the clients that hold it, see ``Holds``. ``was_left`` means that these clients came
    after it had been left behind, and that nobody has used it since. ``memory_untold`` means that the guest
    has to be told its amount of memory when it is thawed.
    """

    row: SandboxRow
    running: RunningMachine | None = None
    link: Link | None = field(default=None, init=False)
    unplugging: Unplugged | None = field(default=None, init=False)
    lock: SandboxLock = field(default_factory=SandboxLock, init=False)
    memory_untold: bool = field(default=False, init=False)
    untold: Recovery | None = field(default=None, init=False)
    dialled: bool = field(default=False, init=False)
    holders: int = field(default=0, init=False)
    was_left: bool = field(default=False, init=False)
    idleness: Idleness = field(default_factory=Idleness, init=False)
    # Rows of sleepers seldom change, and very many may be listed at once.
    _told: tuple[SandboxRow, SandboxInfo] | None = field(default=None, init=False)

    @property
    def sandbox_id(self) -> str:
        """Its id."""
        return self.row.sandbox_id

    @property
    def unplugged(self) -> Unplugged | None:
        """Since when and why it is unplugged, or is being unplugged; None if it is not."""
        return self.row.unplugged or self.unplugging

    def require_running(self) -> RunningMachine:
        """The running machine of a sandbox that runs or is paused.

        Raises:
            InternalError: The sandbox has no running machine.
        """
        if self.running is None:
            raise InternalError(f"sandbox {self.sandbox_id} has no machine", sandbox_id=self.sandbox_id)
        return self.running

    @property
    def state(self) -> SandboxState:
        """Its state for clients: a machine's unexpected end counts before its row says so."""
        running = self.running
        ended = running is not None and running.gone.is_set() and not running.leaving
        return "crashed" if ended else self.row.state

    def info(self) -> SandboxInfo:
        """The information for clients, with that state."""
        running, row = self.running, self.row
        if self.unplugging is not None:
            row = row.but(unplugged=self.unplugged)
        if running is not None and running.gone.is_set() and not running.leaving:
            reason = with_losses(row, crash_reason(row, running))
            return row.but(state="crashed", reason=reason).info()
        if self._told is None or self._told[0] is not row:
            self._told = row, row.info()
        info, idle = self._told[1], self.idleness.told(row.state)
        silent = running is not None and row.state == "running" and running.unresponsive_since is not None
        if running is not None and silent:
            info = msgspec.structs.replace(info, unresponsive_since=running.unresponsive_since)
        return info if idle is None else msgspec.structs.replace(info, idle=idle)
