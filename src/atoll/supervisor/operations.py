"""Makes the operations on sandboxes from the parts that ``assembly`` made."""

from __future__ import annotations

from functools import partial

from atoll.supervisor.assembly import Machines, Rooms, State, Steps, Storage, Tenants
from atoll.supervisor.integrity.fsck import Fsck
from atoll.supervisor.integrity.stored_records import StoredRecords
from atoll.supervisor.lifecycle.checkpoint import Checkpoints
from atoll.supervisor.lifecycle.crash_recovery import CrashRecovery
from atoll.supervisor.lifecycle.create import Creation
from atoll.supervisor.lifecycle.create_of_image import ImageCreation
from atoll.supervisor.lifecycle.create_of_snapshot import SnapshotCreation
from atoll.supervisor.lifecycle.diff import Diffs
from atoll.supervisor.lifecycle.discard import Discards
from atoll.supervisor.lifecycle.first_machine import FirstMachines
from atoll.supervisor.lifecycle.fork import Forks
from atoll.supervisor.lifecycle.kill import Kills
from atoll.supervisor.lifecycle.last_words import Farewells
from atoll.supervisor.lifecycle.limit_changes import LimitChanges
from atoll.supervisor.lifecycle.naps import Naps
from atoll.supervisor.lifecycle.pause import Pauses
from atoll.supervisor.lifecycle.promote import Promotions
from atoll.supervisor.lifecycle.restore import Restores
from atoll.supervisor.lifecycle.rollback import Rollback
from atoll.supervisor.lifecycle.snapshot import Snapshots
from atoll.supervisor.lifecycle.start import Starts
from atoll.supervisor.lifecycle.stop import PowerOff
from atoll.supervisor.lifecycle.suspend import Suspends
from atoll.supervisor.lifecycle.unplug import Unplugs
from atoll.supervisor.lifecycle.wake import Wakes
from atoll.supervisor.monitors.delegation_expiry import DelegationExpiry
from atoll.supervisor.monitors.host_memory import HostMemoryMonitor
from atoll.supervisor.monitors.idle_monitor import IdleMonitor
from atoll.supervisor.monitors.idle_sandboxes import IdleSandboxes
from atoll.supervisor.monitors.recoveries import Recoveries
from atoll.supervisor.monitors.unresponsive import UnresponsiveGuests
from atoll.supervisor.monitors.wake_timers import WakeTimers
from atoll.supervisor.recovery.leftovers import LeftoverCollector
from atoll.supervisor.settings import Settings
from atoll.supervisor.state.idleness import Tiers
from atoll.supervisor.storage.images import image_is_there


class Sleeps:
    """The operations that put sandboxes to sleep."""

    def __init__(self, state: State, storage: Storage, machines: Machines, steps: Steps) -> None:
        self.pauses = Pauses(state.inventory, steps.crashes, steps.guest_memory, steps.paused_wakes)
        self.power_off = PowerOff(
            inventory=state.inventory,
            paths=state.paths,
            running_machines=machines.running,
            sandbox_links=steps.sandbox_links,
            agents=machines.agents,
            crashes=steps.crashes,
            trash=storage.trash,
        )
        self.suspends = Suspends(
            inventory=state.inventory,
            operations=state.operations,
            paths=state.paths,
            checkpoints=steps.suspend_checkpoints,
            sandbox_planner=steps.sandbox_planner,
            running_machines=machines.running,
            sandbox_links=steps.sandbox_links,
            crashes=steps.crashes,
            pauses=self.pauses,
            power_off=self.power_off,
            farewells=Farewells(steps.home_hooks, machines.agents, state.clock.unix_s, state.journal.tell),
            tasks=state.tasks,
        )


def make_limit_changes(state: State, machines: Machines, tenants: Tenants, steps: Steps) -> LimitChanges:
    """Make the part that changes limits and policies."""
    return LimitChanges(
        inventory=state.inventory,
        quotas=tenants.quotas,
        means=machines.means,
        egress=steps.egress,
        guest_memory=steps.guest_memory,
    )


def make_unplugs(state: State, machines: Machines, steps: Steps, sleeps: Sleeps) -> Unplugs:
    """Make the parts that unplug sandboxes."""
    return Unplugs(
        inventory=state.inventory,
        egress=steps.egress,
        marks=state.unplug_marks,
        pauses=sleeps.pauses,
        watcher=steps.paused_wakes,
        tasks=state.tasks,
    )


class Awakenings:
    """The operations that make sandboxes run again, or run from something else."""

    def __init__(
        self,
        rooms: Rooms,
        state: State,
        storage: Storage,
        machines: Machines,
        tenants: Tenants,
        steps: Steps,
        sleeps: Sleeps,
    ) -> None:
        self.starts = Starts(
            paths=state.paths,
            programs=rooms.programs,
            boots=steps.boots,
            sandbox_links=steps.sandbox_links,
            running_machines=machines.running,
            attachment=steps.attachment,
            agents=machines.agents,
            compaction=storage.compaction,
        )
        self.restores = Restores(
            inventory=state.inventory,
            operations=state.operations,
            paths=state.paths,
            sandbox_planner=steps.sandbox_planner,
            running_machines=machines.running,
            sandbox_links=steps.sandbox_links,
            attachment=steps.attachment,
            compaction=storage.compaction,
            trash=storage.trash,
        )
        self.rollback = _rollback(state, storage, machines, tenants, steps)
        self.wakes = Wakes(
            inventory=state.inventory,
            leases=state.leases,
            quotas=tenants.quotas,
            crashes=steps.crashes,
            pauses=sleeps.pauses,
            restores=self.restores,
            starts=self.starts,
            power_off=sleeps.power_off,
            gate=state.drain_gate,
            crash_recovery=CrashRecovery(
                inventory=state.inventory,
                paths=state.paths,
                rollback=self.rollback,
                restores=self.restores,
                starts=self.starts,
            ),
            admission=steps.memory_admission,
            hooks=steps.home_hooks,
        )


def _rollback(state: State, storage: Storage, machines: Machines, tenants: Tenants, steps: Steps) -> Rollback:
    return Rollback(
        inventory=state.inventory,
        operations=state.operations,
        paths=state.paths,
        leases=state.leases,
        quotas=tenants.quotas,
        volumes=storage.volumes,
        clones=steps.clones,
        attachment=steps.attachment,
        sandbox_links=steps.sandbox_links,
        discards=_discards(state, storage, machines, steps),
    )


def _discards(state: State, storage: Storage, machines: Machines, steps: Steps) -> Discards:
    return Discards(
        paths=state.paths,
        running_machines=machines.running,
        trash=storage.trash,
        layer_gc=storage.layer_gc,
        crash_checkpoints=steps.crash_checkpoints,
    )


def make_idle_monitor(
    settings: Settings,
    state: State,
    machines: Machines,
    tenants: Tenants,
    steps: Steps,
    sleeps: Sleeps,
    awakenings: Awakenings,
) -> IdleMonitor:
    """Make the parts that put idle sandboxes to sleep."""
    return IdleMonitor(
        default=Tiers(settings.idle_pause_s or None, settings.idle_suspend_s or None),
        idle_most_s=lambda team: tenants.teams.quotas_of(team).idle_s,
        inventory=state.inventory,
        history=steps.history,
        pauses=sleeps.pauses,
        suspends=sleeps.suspends,
        wakes=awakenings.wakes,
        agents=machines.agents,
        tasks=state.tasks,
        clock=state.clock,
        tell=state.journal.tell,
    )


def make_idle_sandboxes(state: State, steps: Steps, sleeps: Sleeps) -> IdleSandboxes:
    """Make the part that finds idle sandboxes when the host runs short of something."""
    return IdleSandboxes(
        inventory=state.inventory,
        history=steps.history,
        suspends=sleeps.suspends,
        tasks=state.tasks,
        tell=state.journal.tell,
        unix_s=state.clock.unix_s,
    )


def make_host_memory_monitor(
    state: State, machines: Machines, steps: Steps, idle: IdleSandboxes
) -> HostMemoryMonitor:
    """Make the part that keeps some of the host's memory free."""
    return HostMemoryMonitor(
        look=machines.host_memory.look,
        admission=steps.memory_admission,
        inventory=state.inventory,
        idle=idle,
        agents=machines.agents,
        spares=(machines.pool.drain, machines.prestarted.drain),
        bound=machines.bound_memory,
        tasks=state.tasks,
        tell=state.journal.tell,
    )


def make_delegation_expiry(state: State, steps: Steps, sleeps: Sleeps) -> DelegationExpiry:
    """Make the part that ends what sandboxes may do when their delegations end."""
    return DelegationExpiry(
        inventory=state.inventory,
        egress=steps.egress,
        suspends=sleeps.suspends,
        tasks=state.tasks,
        clock=state.clock,
        tell=state.journal.tell,
    )


def make_recoveries(state: State, awakenings: Awakenings) -> Recoveries:
    """Make the part that recovers crashed sandboxes without a use."""
    return Recoveries(
        inventory=state.inventory,
        wakes=awakenings.wakes,
        tasks=state.tasks,
        boot_s=state.clock.boot_s,
        is_drained=lambda: state.drain_gate.is_closed,
    )


def make_unresponsive_guests(state: State, machines: Machines) -> UnresponsiveGuests:
    """Make the part that notices guests that do not answer."""
    return UnresponsiveGuests(
        inventory=state.inventory, agents=machines.agents, clock=state.clock, tell=state.journal.tell
    )


def make_wake_timers(state: State, awakenings: Awakenings) -> WakeTimers:
    """Make the part that wakes sandboxes at their own wake times."""
    return WakeTimers(
        inventory=state.inventory,
        wakes=awakenings.wakes,
        tasks=state.tasks,
        unix_s=state.clock.unix_s,
        boot_s=state.clock.boot_s,
        tell=state.journal.tell,
    )


def make_kills(state: State, storage: Storage, machines: Machines, steps: Steps) -> Kills:
    """Make the parts that kill sandboxes."""
    return Kills(
        inventory=state.inventory,
        paths=state.paths,
        running_machines=machines.running,
        sandbox_links=steps.sandbox_links,
        layer_gc=storage.layer_gc,
        trash=storage.trash,
    )


def make_naps(
    state: State,
    storage: Storage,
    machines: Machines,
    tenants: Tenants,
    steps: Steps,
    sleeps: Sleeps,
    awakenings: Awakenings,
) -> Naps:
    """Make the part that moves running sandboxes to other layers."""
    return Naps(
        inventory=state.inventory,
        paths=state.paths,
        quotas=tenants.quotas,
        sandbox_planner=steps.sandbox_planner,
        running_machines=machines.running,
        suspend_checkpoints=steps.suspend_checkpoints,
        suspends=sleeps.suspends,
        restores=awakenings.restores,
        crashes=steps.crashes,
        compaction=storage.compaction,
        trash=storage.trash,
        tasks=state.tasks,
    )


class Copies:
    """The operations that copy sandboxes as they are: snapshots and forks."""

    def __init__(
        self,
        settings: Settings,
        rooms: Rooms,
        state: State,
        storage: Storage,
        machines: Machines,
        tenants: Tenants,
        steps: Steps,
        naps: Naps,
    ) -> None:
        checkpoints = self.checkpoints = Checkpoints(
            inventory=state.inventory,
            paths=state.paths,
            layers=rooms.layers,
            layer_gc=storage.layer_gc,
            running_machines=machines.running,
            agents=machines.agents,
            trash=storage.trash,
            complete=rooms.complete,
            naps=naps,
        )
        self.snapshots = Snapshots(
            inventory=state.inventory,
            operations=state.operations,
            paths=state.paths,
            quotas=tenants.quotas,
            layers=rooms.layers,
            layer_gc=storage.layer_gc,
            checkpoints=checkpoints,
            crash_checkpoints=steps.crash_checkpoints,
            compaction=storage.compaction,
            checksums=storage.checksums,
            templates=storage.templates,
            steps=storage.steps,
        )
        self.forks = Forks(
            inventory=state.inventory,
            operations=state.operations,
            paths=state.paths,
            quotas=tenants.quotas,
            delegations=tenants.delegations,
            models=tenants.models,
            volume_quotas=tenants.volume_quotas,
            checkpoints=checkpoints,
            clones=steps.clones,
            attachment=steps.attachment,
            crash_checkpoints=steps.crash_checkpoints,
            layer_gc=storage.layer_gc,
            compaction=storage.compaction,
            at_once=settings.restores_at_once,
        )


def make_diffs(rooms: Rooms, state: State, machines: Machines, steps: Steps) -> Diffs:
    """Make the part that compares files."""
    return Diffs(
        inventory=state.inventory,
        paths=state.paths,
        layers=rooms.layers,
        sandbox_planner=steps.sandbox_planner,
        agents=machines.agents,
        complete=rooms.complete,
    )


def make_promotions(
    state: State,
    storage: Storage,
    machines: Machines,
    tenants: Tenants,
    steps: Steps,
    naps: Naps,
    copies: Copies,
    kills: Kills,
) -> Promotions:
    """Make the part that promotes forks."""
    return Promotions(
        inventory=state.inventory,
        operations=state.operations,
        leases=state.leases,
        quotas=tenants.quotas,
        checkpoints=copies.checkpoints,
        snapshots=copies.snapshots,
        naps=naps,
        clones=steps.clones,
        attachment=steps.attachment,
        sandbox_links=steps.sandbox_links,
        discards=_discards(state, storage, machines, steps),
        kills=kills,
    )


def make_creation(
    rooms: Rooms, state: State, storage: Storage, machines: Machines, tenants: Tenants, steps: Steps
) -> Creation:
    """Make the parts that make sandboxes of images and snapshots."""
    first_machines = FirstMachines(
        inventory=state.inventory,
        paths=state.paths,
        quotas=tenants.quotas,
        models=tenants.models,
        links=rooms.links,
        egress=steps.egress,
        boots=steps.boots,
        running_machines=machines.running,
        agents=machines.agents,
        attachment=steps.attachment,
        pool=machines.pool,
        turns=steps.turns,
        memory=steps.memory_admission,
    )
    return Creation(
        inventory=state.inventory,
        quotas=tenants.quotas,
        delegations=tenants.delegations,
        models=tenants.models,
        egress=steps.egress,
        volumes=storage.volumes,
        volume_quotas=tenants.volume_quotas,
        templates=storage.templates,
        gate=state.drain_gate,
        of_image=ImageCreation(
            inventory=state.inventory,
            operations=state.operations,
            programs=rooms.programs,
            images=storage.images,
            quotas=tenants.quotas,
            means=machines.means,
            first_machines=first_machines,
            engine_disks=rooms.engine_disks,
            tasks=state.tasks,
        ),
        of_snapshot=SnapshotCreation(
            inventory=state.inventory,
            operations=state.operations,
            paths=state.paths,
            quotas=tenants.quotas,
            means=machines.means,
            clones=steps.clones,
            attachment=steps.attachment,
            crash_checkpoints=steps.crash_checkpoints,
        ),
    )


def make_leftovers(rooms: Rooms, state: State, storage: Storage, machines: Machines) -> LeftoverCollector:
    """Make the part that removes leftovers."""
    return LeftoverCollector(
        inventory=state.inventory,
        paths=state.paths,
        programs=rooms.programs,
        images=storage.images,
        volumes=storage.volumes,
        layers=rooms.layers,
        layer_gc=storage.layer_gc,
        trash=storage.trash,
        running_machines=machines.running,
        pool_ids=machines.pool.ids,
        cgroups=rooms.cgroups,
    )


def make_fsck(rooms: Rooms, state: State, storage: Storage) -> Fsck:
    """Make the parts that check everything that is stored."""
    records = StoredRecords(
        trees=storage.trees,
        volumes=storage.volumes,
        templates=storage.templates,
        image_is_there=partial(image_is_there, rooms.images),
        copies=state.row_copies,
        copy=state.database.copy,
    )
    return Fsck(
        verification=storage.verification,
        records=records,
        trees=storage.trees,
        checksums=storage.checksums,
        unpacked=rooms.images.unpacked_again,
    )
