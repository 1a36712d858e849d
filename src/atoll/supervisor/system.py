"""Wires the whole supervisor: the one module that knows all parts. Only ``__main__`` and tests import it."""

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
from atoll.supervisor.lifecycle.checkpoint import Checkpoints
from atoll.supervisor.lifecycle.clone import Clones
from atoll.supervisor.lifecycle.crashes import Crashes
from atoll.supervisor.lifecycle.create import Creation
from atoll.supervisor.lifecycle.defaults import Defaults
from atoll.supervisor.lifecycle.fork import Forks
from atoll.supervisor.lifecycle.kill import Kills
from atoll.supervisor.lifecycle.limits import LimitChanges
from atoll.supervisor.lifecycle.parts import Parts
from atoll.supervisor.lifecycle.relayer import Relayer
from atoll.supervisor.lifecycle.rollback import Rollback
from atoll.supervisor.lifecycle.sleep import Sleep
from atoll.supervisor.lifecycle.snapshot import Snapshots
from atoll.supervisor.lifecycle.warm_pool import WarmPool
from atoll.supervisor.machines.agent_client import Agents
from atoll.supervisor.machines.enforcement import Means
from atoll.supervisor.machines.limits import default_limits
from atoll.supervisor.machines.prestarted import PrestartedMachines
from atoll.supervisor.machines.running_machine import RunningMachine, RunningMachines
from atoll.supervisor.monitors.cpu_latency import LatencyMonitor
from atoll.supervisor.monitors.history import History
from atoll.supervisor.monitors.lease_expiry import LeaseExpiry
from atoll.supervisor.monitors.limits import LimitMonitor
from atoll.supervisor.monitors.traffic import Traffic
from atoll.supervisor.monitors.usage import Usage
from atoll.supervisor.recovery.gc import LeftoverCollector
from atoll.supervisor.recovery.reconcile import Reconcile
from atoll.supervisor.settings import MIB, Settings
from atoll.supervisor.state.clock import Clock
from atoll.supervisor.state.database import Database
from atoll.supervisor.state.journal import Journal
from atoll.supervisor.state.leases import Leases
from atoll.supervisor.state.operation_log import Operations
from atoll.supervisor.state.paths import Paths
from atoll.supervisor.state.references import owned_by
from atoll.supervisor.state.registry import Registry, Sandbox
from atoll.supervisor.state.row_copies import RowCopies
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.storage.background_checksums import BackgroundChecksums
from atoll.supervisor.storage.build_cache import BuildCache
from atoll.supervisor.storage.compaction import Compaction
from atoll.supervisor.storage.images import SupervisorImages
from atoll.supervisor.storage.layer_gc import LayerGC
from atoll.supervisor.storage.programs import Programs
from atoll.supervisor.storage.stored_trees import StoredTrees
from atoll.supervisor.storage.template_registry import TemplateRegistry
from atoll.supervisor.storage.trash import Trash
from atoll.supervisor.storage.verify import Verification
from atoll.supervisor.storage.volumes import Volumes
from atoll.supervisor.templates.operations import Templates
from atoll.supervisor.tenants.disk_usage import TeamDiskUsage
from atoll.supervisor.tenants.keys import Keys
from atoll.supervisor.tenants.quotas import TeamQuotas
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
    """What the other rooms provide: ``serving`` makes it for the real host, tests make it from fakes.

    Args:
        engine: Returns the engine of a version, see ``Programs``.
        nameserver: The name server that guests use.
        complete: Whether the kernel gives this process overlays with all features.
        engine_disks: Whether the engine keeps the disks of new sandboxes.
        shaping: Whether the kernel can limit the rate of an interface.
        prestarted_machines: Whether the engine supports prestarted machines.
        agents: Calls guest agents; None makes the real one.
        cpu_latency: The request that idle processors stay quick to wake; None if none can be made.
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
    prestarted_machines: bool = False
    agents: Agents | None = None
    cpu_latency: CpuLatency | None = None


class System:
    """Holds one of each part. Call ``start`` before anything else, and ``aclose`` at the end.

    Args:
        home: The directory of all files.
        settings: The settings from the environment.
        rooms: What the other rooms provide.
        clock: The host's clocks.
    """

    def __init__(self, home: Home, settings: Settings, rooms: Rooms, clock: Clock | None = None) -> None:
        clock = self._clock = clock or Clock()
        self.home = home
        self.settings = settings
        self._latency_monitor = _latency_monitor(rooms)
        self.tasks = Tasks(self._latency_monitor.note if self._latency_monitor else None)
        self._row_copies = RowCopies(home)
        self.database = Database(home.database, self._row_copies)
        self._paths = Paths(home)
        self._journal = Journal(self._paths.console, clock.unix_s)
        self._leases = Leases(clock)
        self.registry = Registry(self.database, self._leases, self._journal)
        self._operations = Operations(self.database, self._journal, clock.unix_s)
        self.teams = Teams(self.database, home.teams, clock.unix_s)
        self.keys = Keys(self.database, home.keys, self.teams, clock.unix_s)
        self.teams.going.append(self.keys.forget_team)
        self.teams.owned.append(partial(owned_by, self.registry))
        agents = rooms.agents or Agents(settings.agent_timeout_s)
        self.parts = self._make_parts(rooms, agents)
        self.teams.owned.append(self.parts.quotas.booked)
        self.images, self.volumes = self.parts.images, self.parts.volumes
        self.teams.going.append(self.images.forget_team)
        clones = Clones(self.parts)
        self.rollback = Rollback(self.parts, clones)
        layer_gc, layers = self.parts.layer_gc, rooms.layers
        self._compaction = Compaction(self.registry, self._paths, layers, layer_gc, self.tasks)
        self.sleep = Sleep(self.parts, self._compaction, self.tasks, self.rollback.roll_back_locked)
        self._traffic = Traffic(self.tasks, self.sleep.use)
        self._relayer = Relayer(self.parts, self.sleep, self._compaction, self.tasks)
        checkpoints = Checkpoints(self.parts, self._relayer)
        self.pool = WarmPool(self.parts, self.tasks, settings.pool_size)
        steps = BuildCache(self.database, clock.unix_s)
        rows = TemplateRegistry(self.database, home.templates, clock.unix_s)
        self.creation = Creation(self.parts, self.pool, clones, rows, self.tasks)
        self.snapshots = Snapshots(self.parts, checkpoints, self._compaction, rows, steps)
        self.forks = Forks(self.parts, checkpoints, clones, self._compaction, settings.restores_at_once)
        self.trees = self._stored_trees(rooms)
        background = BackgroundChecksums(self.trees, self.tasks, settings.checksum_mib_s * MIB)
        self._background_checksums = background
        checksums = self.parts.running_machines.checksums
        self.verification = Verification(self.trees, checksums, layer_gc, background)
        self.kills = Kills(self.parts)
        self.callers = Callers(self.registry, self.kills, self.tasks, clock.boot_s)
        quotas_of = self.teams.quotas_of
        self.templates = Templates(rows, steps, self.registry, self.snapshots, self.kills, quotas_of)
        self.teams.owned += [rows.owned_by, self.volumes.owned_by]
        self.parts.quotas.builds = rows.going
        self.parts.quotas.give_up = self._give_up_image
        self.teams.going.append(self._give_up_images)
        self.defaults = Defaults(self.parts)
        self.limits = LimitChanges(self.parts)
        self._limit_monitor = LimitMonitor(self.parts, self.tasks)
        self.leases = LeaseExpiry(self.parts, self.sleep, self.kills, self.tasks, self._journal.tell)
        self.history = History(self.parts, self.tasks)
        self.usage = Usage(self.parts)
        self.leftovers = LeftoverCollector(self.parts, self.pool.ids, rooms.cgroups)
        self._reconcile = Reconcile(self.parts, self.kills, self.leftovers)
        self.dialling = Dialling(self.registry, self.sleep, self.tasks)
        self.dial_socket = DialSocket(home.dial_socket, self.dialling)
        self.keeper = Keeper(settings.idle_exit_s, self._look)

    def _make_parts(self, rooms: Rooms, agents: Agents) -> Parts:
        paths = self._paths
        trash = Trash(paths.snapshots, self.registry, self.tasks)
        defaults = default_limits(read_memory().total_bytes, disk_usage(self.home.path).total)
        volumes = Volumes(self.database, self._row_copies, self.registry, paths, trash)
        images = SupervisorImages(rooms.images, self.registry, self._clock.boot_s)
        disks = TeamDiskUsage(
            self.registry, volumes, paths, rooms.layers, self.tasks, image_trees=images.trees_for
        )
        running_machines = RunningMachines(
            paths.machines,
            paths.sandboxes,
            engine=rooms.engine,
            programs=rooms.programs,
            layers=rooms.layers,
            agents=agents,
            prestarted_machines=PrestartedMachines(
                paths,
                self.home.pins,
                engine=rooms.engine,
                programs=rooms.programs,
                tasks=self.tasks,
                kept=rooms.prestarted_machines and self.settings.pool_size > 0,
            ),
        )
        return Parts(
            registry=self.registry,
            leases=self._leases,
            operations=self._operations,
            paths=paths,
            programs=rooms.programs,
            images=images,
            layers=rooms.layers,
            links=rooms.links,
            agents=agents,
            running_machines=running_machines,
            crashes=Crashes(self.registry, running_machines, self.tasks),
            trash=trash,
            layer_gc=LayerGC(self.registry, rooms.layers, trash),
            volumes=volumes,
            watch_paused=self._watch_paused,
            watch_limits=self._watch_limits,
            means=Means(
                cgroups=rooms.cgroups is not None, shaping=rooms.shaping, layers=not rooms.engine_disks
            ),
            quotas=TeamQuotas(self.registry, self.teams, defaults, disks.bytes_of),
            default_limits=defaults,
            nameserver=rooms.nameserver,
            complete=rooms.complete,
            engine_disks=rooms.engine_disks,
        )

    def _stored_trees(self, rooms: Rooms) -> StoredTrees:
        images = None if rooms.engine_disks else self.images
        return StoredTrees(registry=self.registry, paths=self._paths, layers=rooms.layers, images=images)

    def _watch_paused(self, sandbox: Sandbox, running: RunningMachine) -> None:
        self._traffic.watch(sandbox, running)

    def _watch_limits(self, sandbox: Sandbox, running: RunningMachine) -> None:
        self._limit_monitor.follow(sandbox, running)
        self.history.follow(sandbox, running)

    async def start(self) -> None:
        """Open the database, adopt what still runs, and accept clients on the dial socket."""
        await self.database.open()
        await self.teams.load()
        await self.keys.load()
        await self.registry.load()
        await self.volumes.load()
        await self.templates.load()
        await asyncio.to_thread(self.parts.programs.keep)
        await self._reconcile.run()
        await self.templates.start()
        self._compaction.look()
        await self.parts.links.start()
        self.pool.start()
        await asyncio.to_thread(self.parts.running_machines.prestarted_machines.sweep)
        self._relayer.end_cut_short()
        self.leases.start()
        self.history.start()
        if self.settings.checksum_mib_s:
            self._background_checksums.start()
        self.dial_socket.start()
        self.tasks.watch(self._journal.keep_small(self._running_ids))
        self.tasks.watch(self.templates.tend())
        if self._latency_monitor:
            self.tasks.watch(self._latency_monitor.run())

    async def suspend_all(self) -> SuspendedAll:
        """Suspend every sandbox that runs or is paused."""
        suspended: list[str] = []
        failed: dict[str, str] = {}
        for sandbox in self.registry.sandboxes():
            if sandbox.row.state not in ("running", "paused", "creating"):
                continue
            try:
                await self.tasks.run(self.sleep.suspend(sandbox))
                suspended.append(sandbox.sandbox_id)
            except (AtollError, OSError) as error:
                failed[sandbox.sandbox_id] = str(error)
        return SuspendedAll(suspended=suspended, failed=failed)

    async def fall_asleep(self) -> None:
        """Suspend sandboxes that were still being made when a client asked to stop.

        No clients are left by now.
        """
        await self.tasks.settle(_FINISH_S)
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
        return [one.sandbox_id for one in self.registry.sandboxes() if one.row.state == "running"]

    async def aclose(self) -> None:
        """Finish the operations in progress, end the warm pool, and free everything.

        Sandboxes keep their states.
        """
        await self.dial_socket.aclose()
        # First, so that no new prestarted machine is made for those that end now.
        await self.parts.running_machines.prestarted_machines.aclose()
        await self.tasks.finish(_FINISH_S)
        await self.pool.aclose()
        for sandbox in self.registry.sandboxes():
            if sandbox.running is not None:
                sandbox.running.close()
        await self.parts.links.aclose()
        await self.database.aclose()

    def _look(self) -> tuple[tuple[str, ...], int, bool]:
        states = tuple(sandbox.row.state for sandbox in self.registry.sandboxes())
        busy = self.tasks.busy or self._background_checksums.busy or self.templates.rows.busy
        return states, self.dial_socket.clients, busy


def _latency_monitor(rooms: Rooms) -> LatencyMonitor | None:
    if rooms.cpu_latency is None:
        return None
    used_s = rooms.cgroups.cpu_s if rooms.cgroups else lambda: None
    return LatencyMonitor(rooms.cpu_latency, used_s, os.cpu_count() or 1)
