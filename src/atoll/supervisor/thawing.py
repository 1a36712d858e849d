"""Undoing a freeze, come what may: a guest that should run never stays frozen."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from atoll.errors import AtollError

if TYPE_CHECKING:
    from atoll.supervisor.agents import Agents
    from atoll.supervisor.berths import Berth

# A guest that runs answers sooner, however busy it is.
_ANSWER_S = 10.0
_TRIES = 3
_log = logging.getLogger(__name__)


async def thaw_or_end(agents: Agents, berth: Berth) -> bool:
    """Have a machine run that is frozen, or may be; end it when it cannot be thawed, which is a crash.

    Returns whether it runs.
    """
    for _ in range(_TRIES):
        if berth.gone.is_set():
            return False
        if berth.frozen is False:
            return True
        # Engines count: a thaw too many is the guest's end, so one that may run is asked first.
        if berth.frozen is None and await _answers(agents, berth):
            berth.is_not_frozen()
            return True
        try:
            await berth.thaw()
            return True
        except (AtollError, OSError) as error:
            _log.warning("the machine %s is not thawed: %s", berth.machine.machine_id, error)
    _log.error("the machine %s stays frozen, so it is ended", berth.machine.machine_id)
    await berth.machine.kill()
    return False


async def _answers(agents: Agents, berth: Berth) -> bool:
    try:
        async with asyncio.timeout(_ANSWER_S):
            await agents.ready(berth.link)
    except (TimeoutError, AtollError, OSError):
        return False
    return True
