"""Limits that a sandbox has when nobody asks for any."""

from __future__ import annotations

from atoll.types import Limits


def default_limits(host_memory_bytes: int) -> Limits:
    """Half of the host's memory."""
    return Limits(memory_mib=host_memory_bytes // 2 >> 20)
