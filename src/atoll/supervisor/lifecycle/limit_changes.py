"""Changes the limits and the network policy of an existing sandbox."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.engines import AdjustableLimits
from atoll.errors import AtollError, UnsupportedError
from atoll.host import to_the_end
from atoll.policy import check_network_scopes
from atoll.supervisor.machines.enforcement import refuse_unheld
from atoll.supervisor.state.ids import check_metadata
from atoll.supervisor.state.transitions import check_action
from atoll.types import EgressPolicy, Limits

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.egress_control import EgressControl
    from atoll.supervisor.lifecycle.guest_memory import GuestMemory
    from atoll.supervisor.machines.enforcement import HostMeans
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.tenants.quotas import TeamQuotas


@dataclass(kw_only=True, eq=False, repr=False)
class LimitChanges:
    """Changes the limits and the network policy of sandboxes."""

    inventory: Inventory
    quotas: TeamQuotas
    means: HostMeans
    egress: EgressControl
    guest_memory: GuestMemory

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
            row = sandbox.row
            refuse_unheld(limits, self.means.of(row.versions, engine_disk=row.engine_disk))
        async with sandbox.lock:
            check_action("limit", sandbox.row.state, sandbox.sandbox_id)
            await self._change(sandbox, limits.over(sandbox.row.limits))
        if sandbox.running is not None:
            sandbox.running.limits_changed.set()

    async def _change(self, sandbox: Sandbox, wanted: Limits) -> None:
        old, quotas = sandbox.row.limits, self.quotas
        # A sleeping sandbox is checked against the quota when it wakes.
        place = contextlib.nullcontext() if sandbox.running is None else quotas.running(sandbox.row, wanted)
        with place:
            try:
                await self._apply(sandbox, wanted)
                await self.inventory.change(sandbox, limits=wanted)
            except BaseException:
                await to_the_end(self._put_back(sandbox, old))
                raise

    async def change_network(
        self, sandbox: Sandbox, network: EgressPolicy, attributes: Mapping[str, str | None]
    ) -> None:
        """Set the sandbox's egress policy from now on. Open connections that it does not allow are reset.

        The given attributes change with it: None removes an attribute. All others stay.

        Raises:
            InvalidSpecError: A rule is invalid or can never match, or the attributes are too large.
            DelegationError: The sandbox's delegation does not allow it.

        Postcondition: on any exception the sandbox keeps its earlier policy, or reaches nothing.
        """
        check_network_scopes(sandbox.row.delegation, network, sandbox.sandbox_id)
        await self.egress.check(network, sandbox.row.team)
        async with sandbox.lock:
            row, running = sandbox.row, sandbox.running
            check_action("limit", row.state, sandbox.sandbox_id)
            kept = {**row.attributes, **attributes}
            told = {name: value for name, value in kept.items() if value is not None}
            check_metadata(told, "attributes")
            network = await self.egress.storable(network, row.team, row.network)
            # Revoked before the row changes and granted only after: it never has more than the row allows.
            if running is not None and network == "none":
                running.link.set_policy(network)
            await self.inventory.change(sandbox, network=network, attributes=told)
            if running is not None:
                self.egress.govern(running.link, sandbox.row)

    async def _put_back(self, sandbox: Sandbox, limits: Limits) -> None:
        with contextlib.suppress(AtollError, OSError):  # the first failure is the one to report
            await self._apply(sandbox, limits)

    async def _apply(self, sandbox: Sandbox, limits: Limits) -> None:
        running = sandbox.running
        if running is not None:
            row = sandbox.row.but(limits=limits)
            wanted, keep_free = (
                self.quotas.limits_within(row),
                self.quotas.keep_free_percent(row),
            )
            machine = running.machine
            if not isinstance(machine, AdjustableLimits):
                raise UnsupportedError(
                    "the limits of this sandbox cannot be changed while it runs",
                    hint="suspend it first: they apply when it wakes",
                    sandbox_id=sandbox.sandbox_id,
                )
            told = machine.limit(wanted, keep_free_percent=keep_free)
            await running.alive(told, sandbox.sandbox_id)
            await running.link.set_rate(wanted.network_mib_s)
            sandbox.memory_untold = True
            if sandbox.row.state == "running":
                await self.guest_memory.tell(sandbox, limits)
