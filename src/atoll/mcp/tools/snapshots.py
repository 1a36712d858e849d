"""Tools that go back in time."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from atoll.mcp.text import columns
from atoll.mcp.tools.adding import Tools
from atoll.mcp.tools.arguments import Which
from atoll.mcp.workplace import Workplace

Snapshot = Annotated[str, Field(description="Name or id of a snapshot of this sandbox.", min_length=1)]


def add(tools: Tools, workplace: Workplace) -> None:
    """Add the tools."""
    found = Snapshots(workplace)
    tools.add(found.snapshot, title="Take a snapshot")
    tools.add(found.snapshots, title="List snapshots", reads=True)
    tools.add(found.rollback, title="Roll back", destroys=True)


class Snapshots:
    """Goes back in time.

    Args:
        workplace: Has the sandboxes.
    """

    def __init__(self, workplace: Workplace) -> None:
        self._workplace = workplace

    async def snapshot(
        self,
        name: Annotated[
            str | None, Field(description="A name for it: lower case letters, digits and -.")
        ] = None,
        comment: Annotated[str, Field(description="Why it was taken, for later.")] = "",
        sandbox: Which = None,
    ) -> str:
        """Store memory, running programs and disk as they are now, in well under a second.

        Do this before a risky step; `rollback` returns to it.
        """
        info = await (await self._workplace.sandbox(sandbox)).snapshot(name, comment=comment)
        return f"stored as {info.name or info.snapshot_id}"

    async def snapshots(self, sandbox: Which = None) -> str:
        """List the snapshots of the sandbox, oldest first."""
        rows = await (await self._workplace.sandbox(sandbox)).snapshots()
        return columns([(row.snapshot_id, row.name or "-", row.comment) for row in rows]) or "none"

    async def rollback(self, snapshot: Snapshot, sandbox: Which = None) -> str:
        """Put memory, programs and disk of the sandbox back to a snapshot. What came after it is lost."""
        used = await self._workplace.sandbox(sandbox)
        await used.rollback(snapshot)
        return f"{used.name or used.id} is as it was at {snapshot}"
