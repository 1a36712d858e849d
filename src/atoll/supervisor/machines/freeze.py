"""Undoes a freeze reliably: a guest that should run never stays frozen."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from atoll.errors import AtollError

if TYPE_CHECKING:
    from atoll.supervisor.state.running_machine import RunningMachine

_TRIES = 2
_log = logging.getLogger(__name__)


async def thaw_or_end(running: RunningMachine) -> bool:
    """Thaw a machine that is or may be frozen. If that fails, end the machine, which is a crash.

    Returns whether the machine runs.
    """
    for _ in range(_TRIES):
        if running.gone.is_set():
            return False
        if not running.may_be_frozen:
            return True
        try:
            await running.thaw()
            return True
        except (AtollError, OSError) as error:
            _log.warning("cannot thaw the machine %s: %s", running.machine.machine_id, error)
    _log.error("the machine %s stays frozen and is ended", running.machine.machine_id)
    running.reason = running.reason or "it could not be thawed"
    await running.machine.kill()
    return False
