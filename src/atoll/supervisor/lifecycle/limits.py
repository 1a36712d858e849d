"""Changes the limits and the network policy of an existing sandbox."""

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
    """Tell a guest that runs again how much memory it has, if that may have changed while it was paused."""
    if sandbox.memory_untold:
        try:
            await _tell_memory(parts, sandbox, sandbox.row.limits)
        except AtollError as error:  # if it has crashed, its next user is told
            _log.warning("sandbox %s does not know its memory: %s", sandbox.sandbox_id, error)


async def _tell_memory(parts: Parts, sandbox: Sandbox, limits: Limits) -> None:
    """Tell the guest how much memory it has: the guest ends its biggest program before that is full."""
    running = parts.running_of(sandbox)
    memory_mib = limits.over(parts.default_limits).memory_mib or 0
    told = parts.agents.init(running.link, GuestInit(memory_bytes=memory_mib << 20))
    await running.alive(told, sandbox.sandbox_id)
    sandbox.memory_untold = False


class LimitChanges:
    """Changes the limits and the network policy of sandboxes.

    Args:
        parts: What sandboxes are made of.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def change(self, sandbox: Sandbox, limits: Limits, *, best_effort: bool = False) -> None:
        """Set the given limits, at once if the sandbox runs, otherwise at its next start. Leave the others.

        Raises:
            InvalidSpecError: No sandbox can work with one of the limits.
            UnsupportedError: This host cannot enforce a limit, or cannot change it while the sandbox runs.
            QuotaError: The quota of its team does not allow that much.

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
        # A sleeping sandbox is checked against the quota when it wakes.
        place = contextlib.nullcontext() if sandbox.running is None else quotas.running(sandbox.row, wanted)
        with place:
            try:
                await self._apply(sandbox, wanted)
                await self._parts.registry.change(sandbox, limits=wanted)
            except BaseException:
                await to_the_end(self._put_back(sandbox, old))
                raise

    async def change_network(self, sandbox: Sandbox, network: EgressPolicy) -> None:
        """Set what the sandbox may reach from now on; ``"none"`` resets its open connections to the outside.

        Postcondition: on any exception it may reach what it could before, or nothing.
        """
        async with sandbox.lock:
            row, running = sandbox.row, sandbox.running
            check_action("limit", row.state, sandbox.sandbox_id)
            # Revoked before the row changes and granted only after: it never has more than the row allows.
            if running is not None and network == "none":
                running.link.set_policy(network)
            await self._parts.registry.change(sandbox, network=network)
            if running is not None:
                running.link.set_policy(network)

    async def _put_back(self, sandbox: Sandbox, limits: Limits) -> None:
        with contextlib.suppress(AtollError, OSError):  # the first failure is the one to report
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
