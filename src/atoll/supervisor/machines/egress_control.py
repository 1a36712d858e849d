"""Has the links of sandboxes enforce the sandboxes' policies, and cuts them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from atoll.policy import check_policy
from atoll.types import EgressPolicy, Policy

if TYPE_CHECKING:
    from atoll.network import Link
    from atoll.supervisor.state.alarms import Alarms
    from atoll.supervisor.state.decisions import DecisionLog
    from atoll.supervisor.state.rows import SandboxRow

_log = logging.getLogger(__name__)


class EgressControl:
    """Sets the policies of links.

    Args:
        decisions: Keeps what is decided.
        alarms: Has sandboxes unplugged.
    """

    def __init__(self, decisions: DecisionLog, alarms: Alarms) -> None:
        self._decisions = decisions
        self._alarms = alarms
        # Beside the sandboxes' own: a wake or a rollback has a link before its sandbox has it.
        self._owners: WeakKeyDictionary[Link, str] = WeakKeyDictionary()
        self._cut: set[str] = set()

    def check(self, network: EgressPolicy) -> None:
        """Refuse a policy that cannot be enforced.

        Raises:
            InvalidSpecError: A rule is invalid, or can never match.
        """
        if isinstance(network, Policy):
            check_policy(network)

    def govern(self, link: Link, row: SandboxRow) -> None:
        """Let the sandbox of a row reach by its link what the row says, and note what is decided.

        Raises:
            OSError: The sandbox is unplugged, and its link cannot be cut.
        """
        sandbox_id = row.sandbox_id
        self._owners[link] = sandbox_id
        link.egress.watch(
            lambda decision: self._decisions.add(sandbox_id, (decision,)),
            lambda reason: self._ring(sandbox_id, reason),
        )
        if row.unplugged is not None or sandbox_id in self._cut:
            link.cut()
        link.set_policy(row.network)

    def cut(self, sandbox_id: str) -> None:
        """Let nothing pass to or from a sandbox any more, on any link that it has or gets, until ``mend``.

        Raises:
            OSError: The kernel refused it for one of its links, whose relay passes nothing all the same.
        """
        self._cut.add(sandbox_id)
        refusals: list[OSError] = []
        for link in self._links(sandbox_id):
            try:
                link.cut()
            except OSError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]

    async def mend(self, sandbox_id: str) -> None:
        """Undo ``cut``.

        Raises:
            OSError: The kernel refused it.
        """
        self._cut.discard(sandbox_id)
        for link in self._links(sandbox_id):
            await link.mend()

    def settled(self, sandbox_id: str) -> None:
        """Rely on the row of a sandbox from now on, which says that it is unplugged."""
        self._cut.discard(sandbox_id)

    def _ring(self, sandbox_id: str, reason: str) -> None:
        # At once, and also for a sandbox that is only being made.
        try:
            self.cut(sandbox_id)
        except OSError as error:
            _log.error("the network of sandbox %s cannot be cut: %s", sandbox_id, error)
        self._alarms.ring(sandbox_id, reason)

    def _links(self, sandbox_id: str) -> list[Link]:
        owned = [link for link, owner in list(self._owners.items()) if owner == sandbox_id]
        return [link for link in owned if link.is_open]
