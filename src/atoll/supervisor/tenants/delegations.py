"""Finds what a new sandbox acts under: the delegation of who asks for it, or a child of another one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from atoll.errors import DelegationError, InvalidSpecError
from atoll.policy import check_scope, child_of, key_budgets, narrowed, own_budget
from atoll.supervisor.state.database import Database
from atoll.supervisor.state.ids import new_id
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.rows import DelegationRow, SandboxRow, SnapshotRow
from atoll.supervisor.tenants.model_ledger import ModelLedger
from atoll.types import Delegation, DelegationSpec

# As the server names a key, and the SDK its own process.
_KEY = re.compile(r"key (key-\S+) of \S+")
_USER = re.compile(r".*, user (\S+)", re.DOTALL)
_NOBODY = "user unknown"


def issuer_of(caller: str | None) -> str:
    """Return who a client acts as: an API key, or a user of this machine."""
    text = caller or ""
    if key := _KEY.fullmatch(text):
        return key[1]
    user = _USER.fullmatch(text)
    return f"user {user[1]}" if user else _NOBODY


@dataclass(eq=False, repr=False)
class Delegations:
    """Makes delegations. Each key and each local user has one of its own, the root of a chain.

    Args:
        ledger: Has the budgets that they set.
        clock: Returns Unix seconds.
    """

    database: Database
    inventory: Inventory
    ledger: ModelLedger
    clock: Callable[[], float]
    _roots: dict[str, Delegation] = field(default_factory=dict, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def load(self) -> None:
        """Read the roots from the database."""
        self._roots = {row.issuer: _root(row) for row in await self.database.all(DelegationRow)}

    async def root_of(self, caller: str | None) -> Delegation:
        """The delegation of a client: all scopes, without an end. Its uid stays the same."""
        issuer = issuer_of(caller)
        async with self._lock:
            if issuer not in self._roots:
                row = DelegationRow(uid=new_delegation_uid(), issuer=issuer, created_at=self.clock())
                await self.database.put(row)
                self._roots[issuer] = _root(row)
            return self._roots[issuer]

    async def for_sandbox(
        self,
        wanted: DelegationSpec | None,
        *,
        caller: str | None,
        team: str | None,
        snapshot: SnapshotRow | None,
        sandbox_id: str,
    ) -> Delegation:
        """What a new sandbox acts under.

        Args:
            snapshot: The snapshot that it continues from, if any. The sandbox can only have less than that.

        Raises:
            DelegationExpiredError: The parent has ended.
            DelegationError: More is asked for than the parent has, or there is no such parent.
        """
        root, base = await self.root_of(caller), _base(snapshot)
        if snapshot is None or base is None:
            parent = self._parent(root, wanted, team)
        else:
            # another team must not read in it for whom this one works
            parent = base if snapshot.team == team else narrowed(root, base)
            wanted = wanted or DelegationSpec()
            if wanted.parent_uid not in (None, parent.uid):
                raise DelegationError(
                    f"a sandbox of snapshot {snapshot.called} acts under a child of {parent.uid}",
                    hint="leave parent_uid out",
                )
            check_scope(parent, "fork", "a copy")
        return root if wanted is None else await self._child(parent, wanted, issuer_of(caller), sandbox_id)

    async def for_copy(
        self, original: SandboxRow, wanted: DelegationSpec | None, *, caller: str | None, copy_id: str
    ) -> Delegation:
        """What a copy of a sandbox acts under: a child of what that acts under.

        Raises:
            InvalidSpecError: Another parent is named.
            DelegationExpiredError: The sandbox's delegation has ended.
            DelegationError: The sandbox may not be copied, or more is asked for than it has.
        """
        parent = original.delegation or await self.root_of(caller)
        if wanted is not None and wanted.parent_uid not in (None, parent.uid):
            raise InvalidSpecError(
                f"a copy of sandbox {original.called} acts under a child of {parent.uid}",
                hint="leave parent_uid out",
            )
        check_scope(parent, "fork", "a copy", original.sandbox_id)
        return await self._child(parent, wanted or DelegationSpec(), issuer_of(caller), copy_id)

    async def forget(self, issuer: str) -> None:
        """Delete the root of a key that is gone. What its sandboxes act under is in their rows."""
        async with self._lock:
            root = self._roots.pop(issuer, None)
            if root is not None:
                row = DelegationRow(uid=root.uid, issuer=issuer, created_at=root.created_at)
                await self.database.delete(row, durable=False)

    def _parent(self, root: Delegation, wanted: DelegationSpec | None, team: str | None) -> Delegation:
        uid = None if wanted is None else wanted.parent_uid
        if uid is None or uid == root.uid:
            return root
        rows = [sandbox.row for sandbox in self.inventory.sandboxes()]
        for row in rows:
            if row.team == team and row.delegation is not None and row.delegation.uid == uid:
                return row.delegation
        raise DelegationError(
            f"no sandbox acts under the delegation {uid[:40]!r}",
            hint="`atoll info` shows what one acts under",
        )

    async def _child(
        self, parent: Delegation, wanted: DelegationSpec, issuer: str, audience: str
    ) -> Delegation:
        child = child_of(
            parent, wanted, uid=new_delegation_uid(), issuer=issuer, audience=audience, now_s=self.clock()
        )
        if (budget := own_budget(child)) is not None and child.models is not None:
            await self.ledger.declare({budget: child.models})
        return child


def new_delegation_uid() -> str:
    """A new uid of a delegation."""
    return f"dlg-{new_id()}"


def _root(row: DelegationRow) -> Delegation:
    budgets = key_budgets(row.issuer)
    return Delegation(uid=row.uid, issuer=row.issuer, created_at=row.created_at, budgets=budgets)


def _base(snapshot: SnapshotRow | None) -> Delegation | None:
    """What bounds the sandboxes of a snapshot. A root's bounds nothing: whoever uses it has one as well."""
    delegation = None if snapshot is None else snapshot.delegation
    return None if delegation is None or delegation.is_root else delegation
