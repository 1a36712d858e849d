"""Changing the limits and the network of a sandbox that is there."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.guest import GuestInit
from atoll.host import to_the_end
from atoll.supervisor.machines.enforcement import refuse_unheld
from atoll.supervisor.state.transitions import check_action
from atoll.types import EgressPolicy, Limits

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.parts import Parts
    from atoll.supervisor.state.registry import Sandbox

_log = logging.getLogger(__name__)


async def tell_changed_memory(parts: Parts, sandbox: Sandbox) -> None:
    """Tell the guest of one that runs again how much memory it has, if that may have changed while it was paused."""
    if sandbox.memory_untold:
        try:
            await _tell_memory(parts, sandbox, sandbox.row.limits)
        except AtollError as error:  # whoever uses it is told, if it has crashed
            _log.warning("sandbox %s does not know its memory: %s", sandbox.sandbox_id, error)


async def _tell_memory(parts: Parts, sandbox: Sandbox, limits: Limits) -> None:
    """Tell it how much memory it has: it ends its biggest program before that is full."""
    running = parts.running_of(sandbox)
    memory_mib = limits.over(parts.default_limits).memory_mib or 0
    told = parts.agents.init(running.link, GuestInit(memory_bytes=memory_mib << 20))
    await running.alive(told, sandbox.sandbox_id)
    sandbox.memory_untold = False


class LimitChanges:
    """Changes limits.

    Args:
        parts: What sandboxes are made of.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def change(self, sandbox: Sandbox, limits: Limits, *, best_effort: bool = False) -> None:
        """Set the limits that are given, leave the others; at once where it runs, else with the next start.

        Raises:
            InvalidSpecError: No sandbox can live with one of them.
            UnsupportedError: This host cannot hold one, or not change it while the sandbox runs.
            QuotaError: Its team may not have so much.

        Postcondition: on any exception all limits are as they were.
        """
        limits.check()
        if not best_effort:
            refuse_unheld(limits, self._parts.means)
        async with sandbox.lock:
            check_action("limit", sandbox.row.state, sandbox.sandbox_id)
            await self._change(sandbox, limits.over(sandbox.row.limits))
        if sandbox.running is not None:
            sandbox.running.limits_changed.set()

    async def _change(self, sandbox: Sandbox, wanted: Limits) -> None:
        old, quotas = sandbox.row.limits, self._parts.quotas
        # One that sleeps is asked for its place when it wakes.
        place = contextlib.nullcontext() if sandbox.running is None else quotas.running(sandbox.row, wanted)
        with place:
            try:
                await self._apply(sandbox, wanted)
                await self._parts.registry.change(sandbox, limits=wanted)
            except BaseException:
                await to_the_end(self._put_back(sandbox, old))
                raise

    async def change_network(self, sandbox: Sandbox, network: EgressPolicy) -> None:
        """Say what the sandbox may reach from now on; ``"none"`` resets what it has open to the outside.

        Postcondition: on any exception it may reach what it could, or nothing.
        """
        async with sandbox.lock:
            row, running = sandbox.row, sandbox.running
            check_action("limit", row.state, sandbox.sandbox_id)
            # Taken away before the row says so, and given only then: never is there more than the row allows.
            if running is not None and network == "none":
                running.link.set_policy(network)
            await self._parts.registry.change(sandbox, network=network)
            if running is not None:
                running.link.set_policy(network)

    async def _put_back(self, sandbox: Sandbox, limits: Limits) -> None:
        with contextlib.suppress(AtollError, OSError):  # the first failure is the one to tell
            await self._apply(sandbox, limits)

    async def _apply(self, sandbox: Sandbox, limits: Limits) -> None:
        running = sandbox.running
        if running is not None:
            row = sandbox.row.but(limits=limits)
            wanted, keep_free = (
                self._parts.quotas.limits_within(row),
                self._parts.quotas.keep_free_percent(row),
            )
            told = running.machine.limit(wanted, keep_free_percent=keep_free)
            await running.alive(told, sandbox.sandbox_id)
            await running.link.set_rate(wanted.network_mib_s)
            sandbox.memory_untold = True
            if sandbox.row.state == "running":
                await _tell_memory(self._parts, sandbox, limits)
