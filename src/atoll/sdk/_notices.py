"""What the user of a sandbox is told beside the results of its calls."""

from __future__ import annotations

from atoll.types import Recovery, SandboxInfo


def tell_recovery(sandbox_id: str, recovery: Recovery) -> None:
    """Warn, by the logger ``atoll``, that a sandbox went on without its memory: on stderr unless logging is set up."""
    import logging

    logging.getLogger("atoll").warning("sandbox %s %s", sandbox_id, recovery)


def tell_recovery_since(info: SandboxInfo, began: float) -> None:
    """Do what ``tell_recovery`` does for a sandbox that was woken, if it has recovered since, in Unix seconds."""
    if info.recovered is not None and info.recovered.at >= began:
        tell_recovery(info.sandbox_id, info.recovered)
