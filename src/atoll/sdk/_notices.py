"""Notices for the user of a sandbox, beside the results of calls."""

from __future__ import annotations

from atoll.types import Recovery, SandboxInfo


def tell_recovery(sandbox_id: str, recovery: Recovery) -> None:
    """Warn, by the logger ``atoll``, that a sandbox continued without its memory.

    Without logging set up, use stderr.
    """
    import logging

    logging.getLogger("atoll").warning("sandbox %s %s", sandbox_id, recovery)


def tell_recovery_since(info: SandboxInfo, began: float) -> None:
    """Warn like ``tell_recovery`` if a woken sandbox has recovered since ``began``, in Unix seconds."""
    if info.recovered is not None and info.recovered.at >= began:
        tell_recovery(info.sandbox_id, info.recovered)
