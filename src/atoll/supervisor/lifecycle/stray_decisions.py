"""Notes decisions about sandboxes that have no network any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.supervisor.lifecycle.egress_control import with_secrets
from atoll.supervisor.state.inventory import row_of

if TYPE_CHECKING:
    from atoll.supervisor.state.decisions import DecisionLog
    from atoll.supervisor.state.inventory import Inventory
    from atoll.types import EgressDecision


@dataclass(eq=False, repr=False)
class StrayDecisions:
    """Notes what was decided last about a sandbox that sleeps or has ended, perhaps while no supervisor ran."""

    inventory: Inventory
    decisions: DecisionLog

    def of_edge(self, sandbox_id: str, decisions: Sequence[EgressDecision]) -> None:
        """Note decisions about requests. A sandbox that nobody knows any more has no team in the log."""
        row = row_of(self.inventory, sandbox_id)
        if row is None:
            self.decisions.add(sandbox_id, decisions)
            return
        told = [with_secrets(one, row.network) for one in decisions]
        self.decisions.add(sandbox_id, told, row.delegation_uid, row.team)

    def of_relay(self, link_id: str, decisions: Sequence[EgressDecision]) -> None:
        """Note decisions about connections. A link that no row names has no sandbox to note them for."""
        for sandbox in self.inventory.sandboxes():
            if sandbox.row.link_id == link_id:
                self.of_edge(sandbox.sandbox_id, decisions)
