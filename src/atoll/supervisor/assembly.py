"""Makes the parts of the supervisor, room by room, from the bottom up.

Each part gets only the parts that it uses. The bags of parts here serve the wiring alone: no part gets a bag.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.audit import AuditLog
from atoll.engines import Prestarting, can
from atoll.host import disk_usage, read_memory
from atoll.secrets import KeyFile, Keyring
from atoll.supervisor.integrity.background_checksums import BackgroundChecksums
from atoll.supervisor.integrity.checksums import CheckpointChecksums
from atoll.supervisor.integrity.state_digests import StateDigests
from atoll.supervisor.integrity.stored_trees import StoredTrees
from atoll.supervisor.integrity.verify import Verification
from atoll.supervisor.lifecycle.attachment import Attachment
from atoll.supervisor.lifecycle.boot import Boots
from atoll.supervisor.lifecycle.clone import Clones
from atoll.supervisor.lifecycle.crash_checkpoint import CrashCheckpoints
from atoll.supervisor.lifecycle.crashes import Crashes
from atoll.supervisor.lifecycle.egress_control import EgressControl
from atoll.supervisor.lifecycle.guest_memory import GuestMemory
from atoll.supervisor.lifecycle.home_hooks import HomeHooks
from atoll.supervisor.lifecycle.image_release import ImageRelease
from atoll.supervisor.lifecycle.memory_admission import MemoryAdmission
from atoll.supervisor.lifecycle.package_registries import PackageRegistries
from atoll.supervisor.lifecycle.sandbox_links import SandboxLinks
from atoll.supervisor.lifecycle.sandbox_planner import SandboxPlanner
from atoll.supervisor.lifecycle.stray_decisions import StrayDecisions
from atoll.supervisor.lifecycle.suspend_checkpoint import SuspendCheckpoints
from atoll.supervisor.lifecycle.team_deletion import TeamDeletion
from atoll.supervisor.lifecycle.turns import Turns
from atoll.supervisor.lifecycle.warm_machine import WarmMachines
from atoll.supervisor.lifecycle.warm_pool import WarmPool
from atoll.supervisor.machines.agent_client import Agents
from atoll.supervisor.machines.default_limits import default_limits
from atoll.supervisor.machines.enforcement import HostMeans
from atoll.supervisor.machines.host_memory import HostMemoryGauge
from atoll.supervisor.machines.machine_planner import MachinePlanner
from atoll.supervisor.machines.prestarted import PrestartedMachines
from atoll.supervisor.machines.running_machines import RunningMachines
from atoll.supervisor.monitors.cpu_latency import LatencyMonitor
from atoll.supervisor.monitors.history import History
from atoll.supervisor.monitors.limit_monitor import LimitMonitor
from atoll.supervisor.monitors.paused_wakes import PausedWakes
from atoll.supervisor.monitors.suspended_wakes import SuspendedWakes
from atoll.supervisor.monitors.volumes import VolumeMonitor
from atoll.supervisor.settings import MIB, Settings
from atoll.supervisor.state.acts import Acts
from atoll.supervisor.state.alarms import Alarms
from atoll.supervisor.state.audit_key import audit_key
from atoll.supervisor.state.clock import Clock
from atoll.supervisor.state.counters import Counters
from atoll.supervisor.state.database import Database
from atoll.supervisor.state.decisions import DecisionLog
from atoll.supervisor.state.drain_gate import DrainGate
from atoll.supervisor.state.inventory import Inventory, row_of
from atoll.supervisor.state.journal import Journal
from atoll.supervisor.state.leases import Leases, LeaseTable
from atoll.supervisor.state.operation_log import Operations
from atoll.supervisor.state.paths import Paths
from atoll.supervisor.state.row_copies import RowCopies
from atoll.supervisor.state.rows import Versions
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.state.unplug_marks import UnplugMarks
from atoll.supervisor.storage.binaries import Programs
from atoll.supervisor.storage.build_cache import BuildCache
from atoll.supervisor.storage.compaction import Compaction
from atoll.supervisor.storage.images import SupervisorImages
from atoll.supervisor.storage.layer_gc import LayerGC
from atoll.supervisor.storage.template_rows import TemplateRows, names_for
from atoll.supervisor.storage.trash import Trash
from atoll.supervisor.storage.volumes import Volumes
from atoll.supervisor.tenants.client_lines import ClientLines
from atoll.supervisor.tenants.delegations import Delegations
from atoll.supervisor.tenants.disk_sizes import DiskSizes
from atoll.supervisor.tenants.disk_usage import TeamDiskUsage
from atoll.supervisor.tenants.keys import Keys
from atoll.supervisor.tenants.model_ledger import ModelLedger
from atoll.supervisor.tenants.model_prices import shipped_table
from atoll.supervisor.tenants.models import Models
from atoll.supervisor.tenants.proxy_passwords import ProxyPasswords
from atoll.supervisor.tenants.quotas import TeamQuotas
from atoll.supervisor.tenants.secrets import Secrets
from atoll.supervisor.tenants.teams import Teams
from atoll.supervisor.tenants.volume_quotas import VolumeQuotas

if TYPE_CHECKING:
    from atoll.engines import Engine
    from atoll.host import CgroupRoot, CpuLatency, Home
    from atoll.images import Images
    from atoll.network import Inspection, Links, Relay
    from atoll.snapshots import ImageRoots, Layers
    from atoll.types import Limits


@dataclass(frozen=True, kw_only=True)
class Rooms:
    """The parts from the other rooms. ``serving`` makes them for the real host, tests make them from fakes.

    Args:
        engine: Returns the engine of a machine or checkpoint, see ``engines_by_version``.
        engine_type: Returns the class of the engine with a name, which tells its capabilities.
        nameserver: The name server that guests use.
        complete: Whether the kernel gives this process overlays with all features.
        engine_disks: Whether the engine keeps the disks of new sandboxes.
        copied_disks: Whether each snapshot keeps a copy of the changes on its disk.
        shaping: Whether the kernel can limit the rate of an interface.
        agents: Calls guest agents; None makes the real one.
        inspection: Judges requests; None on a host that cannot.
        registries: The hosts of package registries, for the policy that allows reading from them.
        authority: Returns the certificate that every sandbox trusts, as PEM; empty for none.
        cpu_latency: The request that idle processors stay quick to wake; None on a host that takes no such
            request.
    """

    engine: Callable[[Versions], Engine]
    engine_type: Callable[[str], type[Engine]]
    programs: Programs
    images: Images
    layers: Layers
    image_roots: ImageRoots
    relay: Relay
    links: Links
    cgroups: CgroupRoot | None
    nameserver: str
    complete: bool
    engine_disks: bool = False
    copied_disks: bool = False
    shaping: bool = True
    agents: Agents | None = None
    inspection: Inspection | None = None
    registries: PackageRegistries = field(default_factory=lambda: PackageRegistries(dict))
    authority: Callable[[], str] = str
    cpu_latency: CpuLatency | None = None


class State:
    """The records of the sandboxes, and the work in progress on them."""

    def __init__(self, home: Home, settings: Settings, rooms: Rooms, clock: Clock) -> None:
        self.clock = clock
        self.latency_monitor = _latency_monitor(rooms)
        self.tasks = Tasks(self.latency_monitor.note if self.latency_monitor else None)
        self.row_copies = RowCopies(home)
        self.database = Database(home.database, self.row_copies)
        self.paths = Paths(home)
        kept_bytes = int(settings.audit_gib * (1 << 30))
        self.audit = AuditLog(home.audit, partial(audit_key, home), clock.unix_s, kept_bytes=kept_bytes)
        self.acts = Acts(self.audit, clock.boot_s)
        self.journal = Journal(self.paths.console, self.acts, clock.unix_s)
        self.leases = Leases(clock)
        self.due = LeaseTable()
        self.inventory = Inventory(self.database, self.leases, self.due, self.journal)
        self.counters = Counters()
        self.decisions = DecisionLog(self.paths.decisions, self.journal, self.acts, self.counters)
        self.alarms = Alarms()
        self.drain_gate = DrainGate(home.drain)
        self.unplug_marks = UnplugMarks(self.paths.unplug_mark, self.paths.unplug_stamp)
        self.operations = Operations(self.database, self.journal, clock.unix_s)

    async def open(self) -> None:
        """Open the audit log and the database."""
        await asyncio.to_thread(self.audit.open)
        await self.database.open()

    async def aclose(self) -> None:
        """Bring both to the disk, and close them."""
        await self.database.aclose()
        await asyncio.to_thread(self.audit.close)


class Storage:
    """The stores on the disk, and their upkeep."""

    def __init__(self, home: Home, settings: Settings, rooms: Rooms, state: State) -> None:
        inventory, paths, tasks, layers = state.inventory, state.paths, state.tasks, rooms.layers
        self.trash = Trash(paths.snapshots, inventory)
        self.layer_gc = LayerGC(inventory, layers, self.trash)
        self.compaction = Compaction(inventory, paths, layers, self.layer_gc, tasks)
        self.volumes = Volumes(state.database, state.row_copies, inventory, paths, self.trash)
        self.templates = TemplateRows(state.database, home.templates, state.clock.unix_s)
        self.images = SupervisorImages(
            rooms.images,
            inventory,
            state.clock.boot_s,
            authority=rooms.authority,
            templates=lambda team: names_for(self.templates.all(), team),
            take=self.trash.take,
        )
        self.steps = BuildCache(state.database, state.clock.unix_s)
        self.checksums = CheckpointChecksums()
        self.trees = StoredTrees(inventory=inventory, paths=paths, layers=layers, images=self.images)
        self.background_checksums = BackgroundChecksums(self.trees, tasks, settings.checksum_mib_s * MIB)
        self.verification = Verification(self.trees, self.checksums, self.layer_gc, self.background_checksums)
        self.digests = StateDigests(self.trees)


class Machines:
    """The parts that run sandboxes, and the warm machines that wait for sandboxes."""

    def __init__(self, home: Home, settings: Settings, rooms: Rooms, state: State, storage: Storage) -> None:
        self._cgroups = rooms.cgroups
        self.host_memory = HostMemoryGauge(settings.host_memory_free_mib, Path(settings.meminfo))
        self.default_limits: Limits = default_limits(read_memory().total_bytes, disk_usage(home.path).total)
        self.means = HostMeans(
            cgroups=rooms.cgroups is not None, shaping=rooms.shaping, engine_type=rooms.engine_type
        )
        new_type = rooms.engine_type(rooms.programs.current.engine_name)
        self.agents = rooms.agents or Agents(settings.agent_timeout_s)
        self.prestarted = PrestartedMachines(
            state.paths,
            home.pins,
            engine=rooms.engine,
            programs=rooms.programs,
            tasks=state.tasks,
            kept=can(new_type, Prestarting) and settings.pool_size > 0,
            memory=self.host_memory.look,
        )
        self.running = RunningMachines(
            state.paths.machines,
            state.paths.sandboxes,
            engine=rooms.engine,
            machine_planner=MachinePlanner(
                state.paths.machines,
                programs=rooms.programs,
                layers=rooms.layers,
                image_roots=rooms.image_roots,
            ),
            layers=rooms.layers,
            agents=self.agents,
            prestarted_machines=self.prestarted,
            checksums=storage.checksums,
        )
        self.pool = WarmPool(
            machines=WarmMachines(
                inventory=state.inventory,
                paths=state.paths,
                programs=rooms.programs,
                images=storage.images,
                links=rooms.links,
                running_machines=self.running,
                agents=self.agents,
                default_limits=self.default_limits,
                nameserver=rooms.nameserver,
                engine_disks=rooms.engine_disks,
            ),
            prestarted_machines=self.prestarted,
            tasks=state.tasks,
            size=settings.pool_size,
            memory=self.host_memory.look,
        )

    def bound_memory(self, most_bytes: int) -> None:
        """Have the kernel bound the memory of all sandboxes together, where it can."""
        if self._cgroups is not None:
            self._cgroups.limit_memory(most_bytes)


class Tenants:
    """The teams with their quotas, keys and secrets."""

    def __init__(
        self,
        home: Home,
        settings: Settings,
        rooms: Rooms,
        state: State,
        storage: Storage,
        machines: Machines,
    ) -> None:
        unix_s = state.clock.unix_s
        self.teams = Teams(state.database, home.teams, unix_s)
        self.model_ledger = ModelLedger(state.database, unix_s, partial(_team_of, state.inventory))
        self.delegations = Delegations(state.database, state.inventory, self.model_ledger, unix_s)
        self.keys = Keys(state.database, home.keys, self.teams, unix_s, self.delegations.forget)
        source = Keyring(home.path) if settings.secrets_keyring == "on" else KeyFile(home.secrets_key)
        self.secrets = Secrets(state.database, home.secrets, source, unix_s)
        self.client_lines = ClientLines(
            state.acts, self.secrets, state.clock.boot_s, wanted=settings.audit_clients == "on"
        )
        self.proxy_passwords = ProxyPasswords(self.secrets.vault)
        self.models = Models(
            home.models, self.secrets, self.model_ledger, shipped_table, state.inventory, self.keys
        )
        self.image_release = ImageRelease(storage.images, machines.pool)
        self.disk_sizes = DiskSizes(state.inventory, storage.volumes, state.paths, rooms.layers)
        self.volume_quotas = VolumeQuotas(storage.volumes, state.paths, state.tasks)
        disks = TeamDiskUsage(
            state.inventory,
            storage.volumes,
            self.disk_sizes,
            state.tasks,
            image_trees=storage.images.trees_for,
        )
        self.quotas = TeamQuotas(
            state.inventory,
            self.teams,
            machines.default_limits,
            disks.bytes_of,
            builds=storage.templates.going,
            give_up=self.image_release.one,
        )
        self.team_deletion = TeamDeletion(
            teams=self.teams,
            keys=self.keys,
            secrets=self.secrets,
            inventory=state.inventory,
            quotas=self.quotas,
            templates=storage.templates,
            volumes=storage.volumes,
            images=storage.images,
            image_release=self.image_release,
        )


def _team_of(inventory: Inventory, sandbox_id: str) -> str | None:
    """The team of a sandbox; None also for one that is gone."""
    row = row_of(inventory, sandbox_id)
    return None if row is None else row.team


def _egress(rooms: Rooms, state: State, tenants: Tenants) -> EgressControl:
    strays = StrayDecisions(state.inventory, state.decisions)
    rooms.relay.stray = strays.of_relay
    if rooms.inspection is not None:
        rooms.inspection.stray = strays.of_edge
    return EgressControl(
        inventory=state.inventory,
        teams=tenants.teams,
        secrets=tenants.secrets,
        passwords=tenants.proxy_passwords,
        models=tenants.models,
        decisions=state.decisions,
        alarms=state.alarms,
        inspection=rooms.inspection,
        relay=rooms.relay,
        registries=rooms.registries,
        clock=state.clock.unix_s,
    )


class Steps:
    """The steps that operations on sandboxes are made of."""

    def __init__(
        self, rooms: Rooms, state: State, storage: Storage, machines: Machines, tenants: Tenants
    ) -> None:
        inventory, paths, tasks = state.inventory, state.paths, state.tasks
        running_machines, agents, quotas = machines.running, machines.agents, tenants.quotas
        self.limit_monitor = LimitMonitor(
            quotas=quotas, layers=rooms.layers, tasks=tasks, cgroups=rooms.cgroups is not None
        )
        self.history = History(
            inventory=inventory,
            quotas=quotas,
            layers=rooms.layers,
            tasks=tasks,
            counters=state.counters,
            unix_s=state.clock.unix_s,
        )
        self.paused_wakes = PausedWakes(tasks)
        self.suspended_wakes = SuspendedWakes(
            inventory=inventory, tasks=tasks, boot_s=state.clock.boot_s, tell=state.journal.tell
        )
        self.crashes = Crashes(inventory, running_machines, tasks)
        self.volume_monitor = VolumeMonitor(
            volumes=storage.volumes, quotas=tenants.volume_quotas, paths=paths, tasks=tasks
        )
        self.attachment = Attachment(
            inventory, [self.crashes, self.limit_monitor, self.volume_monitor, self.history]
        )
        self.sandbox_planner = SandboxPlanner(storage.images, paths, quotas, storage.volumes)
        self.egress = _egress(rooms, state, tenants)
        self.turns = Turns()
        self.memory_admission = MemoryAdmission(
            look=machines.host_memory.look, inventory=inventory, paths=paths, turns=self.turns
        )
        self.home_hooks = HomeHooks(paths.hooks, tasks)
        self.sandbox_links = SandboxLinks(inventory, paths, rooms.links, self.egress, self.suspended_wakes)
        self.guest_memory = GuestMemory(agents, machines.default_limits)
        self.crash_checkpoints = CrashCheckpoints(paths, storage.trash)
        self.suspend_checkpoints = SuspendCheckpoints(paths, storage.trash, rooms.layers, storage.checksums)
        self.boots = Boots(
            images=storage.images,
            sandbox_planner=self.sandbox_planner,
            running_machines=running_machines,
            agents=agents,
            nameserver=rooms.nameserver,
        )
        self.clones = Clones(
            paths=paths,
            images=storage.images,
            layers=rooms.layers,
            links=rooms.links,
            egress=self.egress,
            sandbox_planner=self.sandbox_planner,
            running_machines=running_machines,
            volume_monitor=self.volume_monitor,
            memory=self.memory_admission,
            trash=storage.trash,
        )


def _latency_monitor(rooms: Rooms) -> LatencyMonitor | None:
    if rooms.cpu_latency is None:
        return None
    used_s = rooms.cgroups.cpu_s if rooms.cgroups else lambda: None
    return LatencyMonitor(rooms.cpu_latency, used_s, os.cpu_count() or 1)
