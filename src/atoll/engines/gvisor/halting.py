"""Freezes a machine without asking its kernel or the process that owns it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from atoll.engines.gvisor.record import MachineRecord
from atoll.errors import EngineError
from atoll.host import (
    CgroupRoot,
    children_by_parent,
    process_alive,
    stands_still,
    start_ticks,
    stop_process,
)

# The time for all together: a process may start another one until it stands still.
_STOP_S = 10.0
# The time for a process that the host's kernel holds. After it, such a process starts no other, but waits for
# one.
_HELD_S = 1.0
_LOOK_S = 0.001


def halt(found: MachineRecord, cgroups: CgroupRoot | None) -> list[tuple[int, int]]:
    """See ``Engine.halt``."""
    # Its gofer changes when it gets another disk.
    if not process_alive(found.sentry_pid, found.sentry_started):
        raise EngineError(f"the machine {found.machine_id} does not run any more")
    cgroup = cgroups.find(found.machine_id) if cgroups else None
    try:
        if cgroup is not None and cgroup.freeze():
            return []
    except OSError as error:
        raise EngineError(f"the machine {found.machine_id} cannot be frozen: {error}") from error
    return stop_tree(found.sentry_pid, found.sentry_started)


def stop_tree(pid: int, started_ticks: int) -> list[tuple[int, int]]:
    """Stop a process and all its descendants by signals, and return their pids and start ticks.

    Raises:
        EngineError: Some still move after 10 s, for example if they start new ones faster than these can be
            stopped.
    """
    stopped: dict[int, int] = {}
    if stop_process(pid, started_ticks):
        stopped[pid] = started_ticks
    began_s = time.monotonic()
    while (took_s := time.monotonic() - began_s) < _STOP_S:
        # Check this before the look: a process that stands still now has started none that the look misses.
        still = all(stands_still(one, held=took_s > _HELD_S) for one in stopped)
        new = {one: ticks for one, ticks in _descendants(pid) if one not in stopped}
        if still and not new:
            return list(stopped.items())
        stopped |= {one: ticks for one, ticks in new.items() if stop_process(one, ticks)}
        time.sleep(_LOOK_S)
    raise EngineError(f"the processes below {pid} cannot all be stopped")


def _descendants(pid: int) -> Iterator[tuple[int, int]]:
    children = children_by_parent()
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            waiting.append(child)
            ticks = start_ticks(child)
            if ticks is not None:
                yield child, ticks
