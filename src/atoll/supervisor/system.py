"""The whole supervisor, wired: the one place that knows all parts. Only ``__main__`` and tests import it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.host import Home, disk_usage, read_memory
from atoll.protocol import SuspendedAll
from atoll.supervisor.dialing.socket import Dialling, DialSocket
from atoll.supervisor.idle import Keeper
from atoll.supervisor.lifecycle.callers import Callers
from atoll.supervisor.lifecycle.checkpoint import Captures
from atoll.supervisor.lifecycle.clone import Branches
from atoll.supervisor.lifecycle.crashes import Crashes
from atoll.supervisor.lifecycle.create import Creation
from atoll.supervisor.lifecycle.defaults import Defaults
from atoll.supervisor.lifecycle.fork import Forks
from atoll.supervisor.lifecycle.kill import Kills
from atoll.supervisor.lifecycle.limits import LimitChanges
from atoll.supervisor.lifecycle.parts import Parts
from atoll.supervisor.lifecycle.relayer import Naps
from atoll.supervisor.lifecycle.rollback import Rollback
from atoll.supervisor.lifecycle.sleep import Sleep
from atoll.supervisor.lifecycle.snapshot import Snapshots
from atoll.supervisor.lifecycle.warm_pool import Pool
from atoll.supervisor.machines.agent_client import Agents
from atoll.supervisor.machines.enforcement import Means
from atoll.supervisor.machines.limits import default_limits
from atoll.supervisor.machines.prestarted import Spares
from atoll.supervisor.machines.running_machine import Berth, Berths
from atoll.supervisor.monitors.cpu_latency import LatencyWatch
from atoll.supervisor.monitors.history import History
from atoll.supervisor.monitors.lease_expiry import LeaseWatch
from atoll.supervisor.monitors.limits import LimitWatch
from atoll.supervisor.monitors.traffic import Traffic
from atoll.supervisor.monitors.usage import Usage
from atoll.supervisor.recovery.gc import Leftovers
from atoll.supervisor.recovery.reconcile import Reconcile
from atoll.supervisor.settings import MIB, Settings
from atoll.supervisor.state.clock import Clock
from atoll.supervisor.state.database import Records
from atoll.supervisor.state.journal import Journal
from atoll.supervisor.state.leases import Leases
from atoll.supervisor.state.operation_log import Operations
from atoll.supervisor.state.paths import Places
from atoll.supervisor.state.references import owned_by
from atoll.supervisor.state.registry import Sandbox, Table
from atoll.supervisor.state.row_copies import Copies
from atoll.supervisor.state.tasks import Works
from atoll.supervisor.storage.background_checksums import Sealing
from atoll.supervisor.storage.build_cache import StepCache
from atoll.supervisor.storage.compaction import Merging
from atoll.supervisor.storage.images import ImageShelf
from atoll.supervisor.storage.layer_gc import LayerGC
from atoll.supervisor.storage.programs import Programs
from atoll.supervisor.storage.stored_trees import StoredTrees
from atoll.supervisor.storage.template_registry import TemplateTable
from atoll.supervisor.storage.trash import Trash
from atoll.supervisor.storage.verify import Verifying
from atoll.supervisor.storage.volumes import Volumes
from atoll.supervisor.templates.operations import Templates
from atoll.supervisor.tenants.disk_usage import TeamDisks
from atoll.supervisor.tenants.keys import Keys
from atoll.supervisor.tenants.quotas import QuotaBook
from atoll.supervisor.tenants.teams import Teams

if TYPE_CHECKING:
    from atoll.engines import Engine
    from atoll.host import CgroupRoot, CpuLatency
    from atoll.images import Images
    from atoll.network import Links
    from atoll.snapshots import Layers

_FINISH_S = 60.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Rooms:
    """What the rooms below give: made by ``serving`` for the real host, by tests of fakes.

    Args:
        engine: Gives the engine of a version, see ``Programs``.
        nameserver: Where guests ask for names.
        complete: Whether the kernel gives this process the complete kind of overlay.
        engine_disks: Whether new sandboxes get the engine's own disks.
        shaping: Whether the kernel can limit the rate of an interface.
        spares: Whether the engine keeps spare machines.
        agents: Calls to guest agents; None makes the real one.
        cpu_latency: The request that idle processors stay quick to wake; None where none can be made.
    """

    engine: Callable[[str], Engine]
    programs: Programs
    images: Images
    layers: Layers
    links: Links
    cgroups: CgroupRoot | None
    nameserver: str
    complete: bool
    engine_disks: bool = False
    shaping: bool = True
    spares: bool = False
    agents: Agents | None = None
    cpu_latency: CpuLatency | None = None


class System:
    """One of each noun. ``start`` before anything else, ``aclose`` at the end.

    Args:
        home: Where everything lies.
        settings: What the environment says.
        rooms: The rooms below.
        clock: The host's clocks.
    """

    def __init__(self, home: Home, settings: Settings, rooms: Rooms, clock: Clock | None = None) -> None:
        clock = clock or Clock()
        self.home = home
        self.settings = settings
        self._latency_watch = _latency_watch(rooms)
        self.works = Works(self._latency_watch.note if self._latency_watch else None)
        self._copies = Copies(home)
        self.records = Records(home.database, self._copies)
        self._places = Places(home)
        self._journal = Journal(self._places.console, clock.unix_s)
        self._clock = clock
        self._leases = Leases(clock)
        self.table = Table(self.records, self._leases, self._journal)
        self._operations = Operations(self.records, self._journal, clock.unix_s)
        self.teams = Teams(self.records, home.teams, clock.unix_s)
        self.keys = Keys(self.records, home.keys, self.teams, clock.unix_s)
        self.teams.going.append(self.keys.forget_team)
        self.teams.owned.append(partial(owned_by, self.table))
        self._links = rooms.links
        agents = rooms.agents or Agents(settings.agent_timeout_s)
        self.parts = self._make_parts(rooms, agents)
        self.teams.owned.append(self.parts.quotas.booked)
        self.images = self.parts.images
        self.teams.going.append(self.images.forget_team)
        self.volumes = self.parts.volumes
        branches = Branches(self.parts)
        self.rollback = Rollback(self.parts, branches)
        layer_gc = self.parts.layer_gc
        self._merging = Merging(self.table, self._places, rooms.layers, layer_gc, self.works)
        self.sleep = Sleep(self.parts, self._merging, self.works, self.rollback.roll_back_locked)
        self._traffic = Traffic(self.works, self.sleep.use)
        self._naps = Naps(self.parts, self.sleep, self._merging, self.works)
        captures = Captures(self.parts, self._naps)
        self.pool = Pool(self.parts, self.works, settings.pool_size)
        steps = StepCache(self.records, clock.unix_s)
        rows = TemplateTable(self.records, home.templates, clock.unix_s)
        self.creation = Creation(self.parts, self.pool, branches, rows, self.works)
        self.snapshots = Snapshots(self.parts, captures, self._merging, rows, steps)
        self.forks = Forks(self.parts, captures, branches, self._merging, settings.restores_at_once)
        self.trees = self._stored_trees(rooms)
        self._sealing = Sealing(self.trees, self.works, settings.seal_mib_s * MIB)
        self.verifying = Verifying(self.trees, self.parts.berths.seals, layer_gc, self._sealing)
        self.kills = Kills(self.parts)
        self.callers = Callers(self.table, self.kills, self.works, clock.boot_s)
        self.templates = Templates(rows, steps, self.table, self.snapshots, self.kills, self.teams.quotas_of)
        self.teams.owned += [rows.owned_by, self.volumes.owned_by]
        self.parts.quotas.builds = rows.going
        self.parts.quotas.give_up = self._give_up_image
        self.teams.going.append(self._give_up_images)
        self.defaults = Defaults(self.parts)
        self.limits = LimitChanges(self.parts)
        self._limit_watch = LimitWatch(self.parts, self.works)
        self.leases = LeaseWatch(self.parts, self.sleep, self.kills, self.works, self._journal.tell)
        self.history = History(self.parts, self.works)
        self.usage = Usage(self.parts)
        self.leftovers = Leftovers(self.parts, self.pool.ids, rooms.cgroups)
        self._reconcile = Reconcile(self.parts, self.kills, self.leftovers)
        self.dialling = Dialling(self.table, self.sleep, self.works)
        self.dial_socket = DialSocket(home.dial_socket, self.dialling)
        self.keeper = Keeper(settings.idle_exit_s, self._look)

    def _make_parts(self, rooms: Rooms, agents: Agents) -> Parts:
        places = self._places
        trash = Trash(places.snapshots, self.table, self.works)
        defaults = default_limits(read_memory().total_bytes, disk_usage(self.home.path).total)
        volumes = Volumes(self.records, self._copies, self.table, places, trash)
        images = ImageShelf(rooms.images, self.table, self._clock.boot_s)
        disks = TeamDisks(self.table, volumes, places, rooms.layers, self.works, image_trees=images.trees_for)
        berths = Berths(
            places.machines,
            places.sandboxes,
            engine=rooms.engine,
            programs=rooms.programs,
            layers=rooms.layers,
            agents=agents,
            spares=Spares(
                places,
                self.home.pins,
                engine=rooms.engine,
                programs=rooms.programs,
                works=self.works,
                kept=rooms.spares and self.settings.pool_size > 0,
            ),
        )
        return Parts(
            table=self.table,
            leases=self._leases,
            operations=self._operations,
            places=places,
            programs=rooms.programs,
            images=images,
            layers=rooms.layers,
            links=rooms.links,
            agents=agents,
            berths=berths,
            crashes=Crashes(self.table, berths, self.works),
            trash=trash,
            layer_gc=LayerGC(self.table, rooms.layers, trash),
            volumes=volumes,
            watch_paused=self._watch_paused,
            watch_limits=self._watch_limits,
            means=Means(
                cgroups=rooms.cgroups is not None, shaping=rooms.shaping, layers=not rooms.engine_disks
            ),
            quotas=QuotaBook(self.table, self.teams, defaults, disks.bytes_of),
            default_limits=defaults,
            nameserver=rooms.nameserver,
            complete=rooms.complete,
            engine_disks=rooms.engine_disks,
        )

    def _stored_trees(self, rooms: Rooms) -> StoredTrees:
        images = None if rooms.engine_disks else self.images
        return StoredTrees(table=self.table, places=self._places, layers=rooms.layers, images=images)

    def _watch_paused(self, sandbox: Sandbox, berth: Berth) -> None:
        self._traffic.watch(sandbox, berth)

    def _watch_limits(self, sandbox: Sandbox, berth: Berth) -> None:
        self._limit_watch.follow(sandbox, berth)
        self.history.follow(sandbox, berth)

    async def start(self) -> None:
        """Open the database, adopt what runs, and take clients of the dial socket."""
        await self.records.open()
        await self.teams.load()
        await self.keys.load()
        await self.table.load()
        await self.volumes.load()
        await self.templates.load()
        await asyncio.to_thread(self.parts.programs.keep)
        await self._reconcile.run()
        await self.templates.start()
        self._merging.look()
        await self._links.start()
        self.pool.start()
        await asyncio.to_thread(self.parts.berths.spares.sweep)
        self._naps.end_cut_short()
        self.leases.start()
        self.history.start()
        if self.settings.seal_mib_s:
            self._sealing.start()
        self.dial_socket.start()
        self.works.watch(self._journal.keep_small(self._running_ids))
        self.works.watch(self.templates.tend())
        if self._latency_watch:
            self.works.watch(self._latency_watch.run())

    async def suspend_all(self) -> SuspendedAll:
        """Put every sandbox to sleep that runs or is paused."""
        suspended: list[str] = []
        failed: dict[str, str] = {}
        for sandbox in self.table.sandboxes():
            if sandbox.row.state not in ("running", "paused", "creating"):
                continue
            try:
                await self.works.run(self.sleep.suspend(sandbox))
                suspended.append(sandbox.sandbox_id)
            except (AtollError, OSError) as error:
                failed[sandbox.sandbox_id] = str(error)
        return SuspendedAll(suspended=suspended, failed=failed)

    async def fall_asleep(self) -> None:
        """Suspend what was still being made when a client asked for the stop; there are no clients any more."""
        await self.works.settle(_FINISH_S)
        for sandbox_id, why in (await self.suspend_all()).failed.items():
            _log.warning("sandbox %s goes on without a supervisor: %s", sandbox_id, why)

    async def _give_up_images(self, team: str) -> None:
        while await self._give_up_image(team):
            pass

    async def _give_up_image(self, team: str) -> bool:
        for digest in await self.images.unused_by(team):
            await self.pool.forget(digest)
            if await self.images.give_up(digest):
                return True
        return False

    def _running_ids(self) -> list[str]:
        return [one.sandbox_id for one in self.table.sandboxes() if one.row.state == "running"]

    async def aclose(self) -> None:
        """Finish what is going on, end the pool, and let go of everything; sandboxes stay as they are."""
        await self.dial_socket.aclose()
        # First, so that what ends now has no other made.
        await self.parts.berths.spares.aclose()
        await self.works.finish(_FINISH_S)
        await self.pool.aclose()
        for sandbox in self.table.sandboxes():
            if sandbox.berth is not None:
                sandbox.berth.close()
        await self._links.aclose()
        await self.records.aclose()

    def _look(self) -> tuple[tuple[str, ...], int, bool]:
        states = tuple(sandbox.row.state for sandbox in self.table.sandboxes())
        busy = self.works.busy or self._sealing.busy or self.templates.rows.busy
        return states, self.dial_socket.clients, busy


def _latency_watch(rooms: Rooms) -> LatencyWatch | None:
    if rooms.cpu_latency is None:
        return None
    used_s = rooms.cgroups.cpu_s if rooms.cgroups else lambda: None
    return LatencyWatch(rooms.cpu_latency, used_s, os.cpu_count() or 1)
