"""Tells which memories another engine program made than the one installed now."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from atoll.errors import AtollError
from atoll.types import EngineUse, UpgradeReport

if TYPE_CHECKING:
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.rows import Versions
    from atoll.supervisor.storage.binaries import Programs


class _Memory(NamedTuple):
    kind: Literal["sandbox", "snapshot"]
    id: str
    name: str | None
    versions: Versions


@dataclass(eq=False, repr=False)
class EngineUses:
    """Looks at sandboxes that sleep with their memory, and at snapshots."""

    inventory: Inventory
    programs: Programs

    async def report(self) -> UpgradeReport:
        """Report memories that the installed engine cannot wake, and whether their own programs are kept."""
        current = self.programs.current
        memories = [
            _Memory("sandbox", one.sandbox_id, one.row.name, one.row.versions)
            for one in self.inventory.sandboxes()
            if one.row.state == "suspended" and one.row.has_memory
        ]
        memories += [
            _Memory("snapshot", row.snapshot_id, row.name, row.versions) for row in self.inventory.snapshots()
        ]
        others = [each for each in memories if each.versions.engine != current.engine]
        return UpgradeReport(
            engine=current.engine_name,
            engine_version=current.engine_version,
            others=await asyncio.to_thread(lambda: [self._use(each) for each in others]),
        )

    def _use(self, memory: _Memory) -> EngineUse:
        return EngineUse(
            kind=memory.kind,
            id=memory.id,
            name=memory.name,
            engine=memory.versions.engine_name,
            engine_version=memory.versions.engine_version,
            kept=self._is_kept(memory.versions),
        )

    def _is_kept(self, versions: Versions) -> bool:
        try:
            self.programs.engine_path(versions)
        except AtollError:
            return False
        return True
