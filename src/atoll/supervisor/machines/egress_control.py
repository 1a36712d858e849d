"""Has the links of sandboxes enforce the sandboxes' policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atoll.policy import check_policy
from atoll.types import EgressPolicy, Policy

if TYPE_CHECKING:
    from atoll.network import Link
    from atoll.supervisor.state.alarms import Alarms
    from atoll.supervisor.state.decisions import DecisionLog
    from atoll.supervisor.state.rows import SandboxRow


class EgressControl:
    """Sets the policies of links.

    Args:
        decisions: Keeps what is decided.
        alarms: Has sandboxes unplugged.
    """

    def __init__(self, decisions: DecisionLog, alarms: Alarms) -> None:
        self._decisions = decisions
        self._alarms = alarms

    def check(self, network: EgressPolicy) -> None:
        """Refuse a policy that cannot be enforced.

        Raises:
            InvalidSpecError: A rule is invalid, or can never match.
        """
        if isinstance(network, Policy):
            check_policy(network)

    def govern(self, link: Link, row: SandboxRow) -> None:
        """Let the sandbox of a row reach by its link what the row says, and note what is decided."""
        sandbox_id = row.sandbox_id
        link.egress.watch(
            lambda decision: self._decisions.add(sandbox_id, (decision,)),
            lambda reason: self._alarms.ring(sandbox_id, reason),
        )
        link.set_policy(row.network)
