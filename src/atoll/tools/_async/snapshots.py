"""Tools that go back in time."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from atoll.sdk import AsyncSandbox
from atoll.tools.schema import Offer
from atoll.tools.text import columns

Snapshot = Annotated[str, Meta(description="Name or id of a snapshot of this sandbox.", min_length=1)]


class AsyncSnapshotTools:
    """Goes back in time.

    Args:
        sandbox: Where.
    """

    OFFERS: ClassVar[tuple[Offer, ...]] = (
        Offer("snapshot", "Take a snapshot"),
        Offer("snapshots", "List snapshots", reads=True),
        Offer("rollback", "Roll back", destroys=True),
    )

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def snapshot(
        self,
        name: Annotated[
            str | None, Meta(description="A name for it: lower case letters, digits and -.")
        ] = None,
        comment: Annotated[str, Meta(description="Why it was taken, for later.")] = "",
    ) -> str:
        """Store memory, running programs and disk as they are now, in well under a second.

        Do this before a risky step; `rollback` returns to it.
        """
        info = await self._sandbox.snapshot(name, comment=comment)
        return f"stored as {info.name or info.snapshot_id}"

    async def snapshots(self) -> str:
        """List the snapshots of the sandbox, oldest first."""
        rows = await self._sandbox.snapshots()
        return columns([(row.snapshot_id, row.name or "-", row.comment) for row in rows]) or "none"

    async def rollback(self, snapshot: Snapshot) -> str:
        """Put memory, programs and disk of the sandbox back to a snapshot. All later changes are lost."""
        await self._sandbox.rollback(snapshot)
        return f"{self._sandbox.name or self._sandbox.id} is as it was at {snapshot}"
