"""Pause, suspend and waking."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from atoll.host import sync_directory, sync_tree
from atoll.supervisor.berths import Berth, crash_error
from atoll.supervisor.captures import read_flows, write_flows
from atoll.supervisor.erasing import erase
from atoll.supervisor.identity import first_init, woken_init
from atoll.supervisor.parts import Parts
from atoll.supervisor.states import check_action
from atoll.supervisor.table import CRASH_REASON, Sandbox

if TYPE_CHECKING:
    from atoll.network import Link

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Sleep:
    """Puts sandboxes to sleep and wakes them.

    Args:
        parts: What sandboxes are made of.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def pause(self, sandbox: Sandbox) -> None:
        """Freeze it in memory. A paused one stays so.

        Raises:
            StateError: It is suspended or crashed.
        """
        async with sandbox.lock:
            check_action("pause", sandbox.row.state, sandbox.sandbox_id)
            if sandbox.row.state == "paused":
                return
            berth = self._parts.berth_of(sandbox)
            await berth.alive(berth.freeze(), sandbox.sandbox_id)
            berth.hang_up()
            try:
                await self._parts.table.change(sandbox, state="paused")
            except BaseException:
                await asyncio.shield(berth.thaw())
                raise
        self._parts.watch_paused(sandbox, berth)

    async def suspend(self, sandbox: Sandbox) -> None:
        """Write its memory to the disk and free everything else; durable when this returns.

        Raises:
            StateError: It crashed.
        """
        async with sandbox.lock:
            check_action("suspend", sandbox.row.state, sandbox.sandbox_id)
            if sandbox.row.state != "suspended":
                await self._suspend(sandbox)

    async def wake(self, sandbox: Sandbox) -> Berth:
        """Have it running, whatever it was: paused, suspended or crashed."""
        async with sandbox.lock:
            check_action("wake", sandbox.row.state, sandbox.sandbox_id)
            return await self.wake_locked(sandbox)

    async def wake_locked(self, sandbox: Sandbox) -> Berth:
        """Do what ``wake`` does, for a caller that holds the sandbox's lock."""
        berth = sandbox.berth
        if berth is not None and berth.gone.is_set():
            await self._parts.crashes.crashed_locked(sandbox, berth, CRASH_REASON)
        if sandbox.row.state == "paused":
            await self._thaw(sandbox)
        elif sandbox.row.state == "suspended":
            await self._restore(sandbox)
        elif sandbox.row.state == "crashed":
            await self._boot(sandbox)
        return self._parts.berth_of(sandbox)

    async def nap_locked(self, sandbox: Sandbox, meanwhile: Callable[[], Awaitable[_T]]) -> _T:
        """Have a running sandbox sleep only while ``meanwhile`` is awaited; its memory does not reach the disk.

        Clients keep their connections. For a caller that holds the sandbox's lock.
        """
        await self._suspend(sandbox, briefly=True)
        try:
            return await meanwhile()
        finally:
            await asyncio.shield(self._restore(sandbox, durable=False))

    async def _suspend(self, sandbox: Sandbox, *, briefly: bool = False) -> None:
        berth = self._parts.berth_of(sandbox)
        if not briefly:
            berth.hang_up()
        into = self._parts.places.checkpoint(sandbox.sandbox_id)
        aside = into.with_name("checkpoint.new")
        for left in (aside, into):  # an operation that failed halfway may have left either
            await erase(left)
        aside.mkdir(mode=0o700)
        berth.leaving = True
        berth.link.hold()
        try:
            flows = await berth.link.flows()
            await berth.machine.checkpoint(aside, leave_running=False, durable=not briefly)
            write_flows(aside, flows)
            await self._parts.berths.end(berth, hang_up=not briefly)
            await asyncio.to_thread(_put, aside, into, None if briefly else berth.disk)
        except BaseException:
            berth.leaving = False
            await asyncio.shield(self._undo_suspend(sandbox, berth, aside))
            if sandbox.row.state == "crashed":
                raise crash_error(sandbox.sandbox_id) from None
            raise
        await self._parts.table.change(
            sandbox, durable=not briefly, state="suspended", machine=None, machine_id=None
        )
        sandbox.berth, sandbox.link = None, berth.link

    async def _undo_suspend(self, sandbox: Sandbox, berth: Berth, aside: Path) -> None:
        berth.link.release()
        await erase(aside)
        if berth.gone.is_set():
            await self._parts.crashes.crashed_locked(sandbox, berth, "it ended while it was being suspended")
        elif sandbox.row.state == "paused":
            self._parts.watch_paused(sandbox, berth)

    async def _thaw(self, sandbox: Sandbox) -> None:
        berth = self._parts.berth_of(sandbox)
        # The row first: a machine that may be frozen can be thawed later, but never twice.
        await self._parts.table.change(sandbox, state="running")
        try:
            await berth.alive(berth.thaw(), sandbox.sandbox_id)
        except BaseException:
            await asyncio.shield(self._parts.table.change(sandbox, state="paused"))
            raise

    async def _restore(self, sandbox: Sandbox, *, durable: bool = True) -> None:
        checkpoint = self._parts.places.checkpoint(sandbox.sandbox_id)
        row = sandbox.row.but(generation=sandbox.row.generation + 1)
        link, kept = await self._link_of(sandbox)
        try:
            plan = self._parts.plan(row, checkpoint=checkpoint)
            berth = await self._parts.berths.begin(plan, link, woken_init(row))
        except BaseException:
            await asyncio.shield(self._put_back(sandbox, link, kept))
            raise
        try:
            if kept:
                link.release()
            else:
                await link.reset_connections(read_flows(checkpoint))
            await self._parts.take_up(sandbox, berth, generation=row.generation, durable=durable)
        except BaseException:
            await asyncio.shield(self._parts.berths.end(berth))
            await asyncio.shield(self._put_back(sandbox, link, kept))
            raise
        self._parts.trash.take(checkpoint)

    @staticmethod
    async def _put_back(sandbox: Sandbox, link: Link, kept: bool) -> None:
        """Undo a waking's hold of a link: only one that the sandbox slept with has its connections."""
        if kept:
            sandbox.link = link
        else:
            await link.aclose()

    async def _boot(self, sandbox: Sandbox) -> None:
        row = sandbox.row.but(generation=sandbox.row.generation + 1, versions=self._parts.programs.current)
        image = self._parts.images.facts(row.image_digest)
        link, _ = await self._link_of(sandbox)
        try:
            ca_pem = image.ca_pem if row.trust_host_ca else None
            wanted = first_init(row, image.env, ca_pem, self._parts.nameserver)
            berth = await self._parts.berths.begin(self._parts.plan(row), link, wanted)
            try:
                await self._parts.take_up(
                    sandbox, berth, generation=row.generation, versions=row.versions, reason=None
                )
            except BaseException:
                await asyncio.shield(self._parts.berths.end(berth))
                raise
        except BaseException:
            await asyncio.shield(link.aclose())
            raise

    async def _link_of(self, sandbox: Sandbox) -> tuple[Link, bool]:
        """The link that waits for it and True, else a new one and False."""
        link = await self._parts.waiting_link(sandbox)
        sandbox.link = None
        kept = link is not None
        if link is None:
            link = await self._parts.links.take()
        else:
            await link.prepare()
        link.set_policy(sandbox.row.network)
        return link, kept


def _put(aside: Path, into: Path, durable_with: Path | None) -> None:
    if durable_with is not None:
        sync_tree(durable_with)
    os.rename(aside, into)
    if durable_with is not None:
        sync_directory(into.parent)
