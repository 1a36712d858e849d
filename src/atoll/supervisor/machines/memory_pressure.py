"""Tells when the host has too little free memory to keep machines ready."""

from __future__ import annotations

from atoll.host import Memory

_LEAST_BYTES = 512 << 20
_SHARE = 0.1


def under_pressure(memory: Memory) -> bool:
    """Whether less than 10 % or 512 MiB of the memory is free."""
    return memory.available_bytes < max(_LEAST_BYTES, memory.total_bytes * _SHARE)
