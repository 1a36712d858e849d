"""Tools that try several ways at once."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from atoll.mcp.tools.adding import Tools
from atoll.mcp.tools.arguments import Named, Which
from atoll.mcp.workplace import IDLE_S, Workplace
from atoll.sdk import AsyncSandbox
from atoll.tools import Line, Path, Seconds, clipped, tried
from atoll.types import Lifecycle

_MOST_TRIES = 20
_LEASE = Lifecycle(ttl_s=IDLE_S, on_expiry="suspend")
# Names, kinds, sizes and times of change; a fork keeps the times of files that it does not touch.
_LISTING = (
    "find . -xdev \\( -path ./proc -o -path ./sys \\) -prune -o ! -type d -printf '%P\\0%y %s %T@ %m\\0'"
)


def add(tools: Tools, workplace: Workplace) -> None:
    """Add the tools."""
    found = Forks(workplace)
    tools.add(found.fork, title="Fork the sandbox")
    tools.add(found.try_in_forks, title="Try commands in forks")
    tools.add(found.compare_forks, title="Compare two forks", reads=True)
    tools.add(found.keep_fork, title="Keep a fork", destroys=True)


class Forks:
    """Tries several ways at once.

    Args:
        workplace: Has the sandboxes.
    """

    def __init__(self, workplace: Workplace) -> None:
        self._workplace = workplace

    async def fork(
        self,
        count: Annotated[int, Field(description="How many copies.", ge=1, le=_MOST_TRIES)] = 1,
        sandbox: Which = None,
    ) -> str:
        """Make running copies of the sandbox, memory and programs included. The original keeps running."""
        copies = await (await self._workplace.sandbox(sandbox)).fork(count, lifecycle=_LEASE)
        return "\n".join(self._workplace.known(copy).id for copy in copies)

    async def try_in_forks(
        self,
        commands: Annotated[
            list[Line], Field(description="One command for each copy.", min_length=1, max_length=_MOST_TRIES)
        ],
        sandbox: Which = None,
        timeout_s: Seconds = 300.0,
    ) -> str:
        """Try several ways at once: make a copy of the sandbox for each command and run them side by side.

        The copies start from the same memory and disk and cannot disturb each other or the original. Returns
        each copy's id and result. Then `compare_forks` if needed, and `keep_fork` the best one.
        """
        used = await self._workplace.sandbox(sandbox, busy_s=timeout_s)
        copies = [
            self._workplace.known(copy)
            for copy in await used.fork(
                len(commands), lifecycle=Lifecycle(ttl_s=timeout_s + IDLE_S, on_expiry="suspend")
            )
        ]
        return await tried(copies, commands, timeout_s)

    async def compare_forks(self, first: Named, second: Named, path: Path = ".") -> str:
        """List the files below a directory that differ between two sandboxes, such as two forks."""
        left, right = [await _listing(await self._workplace.sandbox(each), path) for each in (first, second)]
        rows = [
            f"{_difference(name in left, name in right, first, second)}: {name}"
            for name in sorted(left.keys() | right.keys())
            if left.get(name) != right.get(name)
        ]
        return clipped("\n".join(rows)) or "no file differs"

    async def keep_fork(
        self,
        winner: Named,
        discard: Annotated[
            list[str], Field(description="The copies to kill, by id or name.", max_length=100)
        ] = [],  # noqa: B006  # the schema shows the default, and nobody changes it
        sandbox: Which = None,
    ) -> str:
        """Keep one copy: the sandbox continues from its memory, programs and disk, under its own id.

        Its old state stays as a snapshot. The named copies are killed for good.
        """
        used, kept = await self._workplace.sandbox(sandbox), await self._workplace.sandbox(winner)
        told = f"{used.name or used.id} continues from {kept.name or kept.id}"
        if kept.id != used.id:
            before = await used.promote(kept)
            self._workplace.forget(kept)
            told = f"{told}; `rollback` to {before.snapshot_id} undoes it"
        for each in discard:
            if each not in (kept.id, kept.name):
                await self._workplace.kill((await AsyncSandbox.get(each)).sandbox_id)
        return told


def _difference(in_first: bool, in_second: bool, first: str, second: str) -> str:
    if in_first and in_second:
        return "differs"
    return f"only in {first if in_first else second}"


async def _listing(sandbox: AsyncSandbox, path: str) -> dict[str, str]:
    result = (await sandbox.run(_LISTING, cwd=path, timeout_s=120.0, max_output_bytes=64 << 20)).check()
    parts = result.stdout.split("\0")
    return dict(zip(parts[::2], parts[1::2], strict=False))
