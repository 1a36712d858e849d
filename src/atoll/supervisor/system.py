"""Wires the whole supervisor: the one module that knows all parts. Only ``__main__`` and tests import it."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from atoll.host import Home, disk_usage
from atoll.supervisor.alerting import Alerting
from atoll.supervisor.asking import make_asks
from atoll.supervisor.assembly import Machines, Rooms, State, Steps, Storage, Tenants
from atoll.supervisor.billing import make_model_billing
from atoll.supervisor.dialing.neighbours import Neighbours
from atoll.supervisor.dialing.socket import Dialling, DialSocket
from atoll.supervisor.lifecycle.callers import Callers
from atoll.supervisor.lifecycle.drain import Drains
from atoll.supervisor.lifecycle.holds import Holds
from atoll.supervisor.lifecycle.image_requests import ImageRequests
from atoll.supervisor.lifecycle.program_defaults import Defaults
from atoll.supervisor.lifecycle.services import Services
from atoll.supervisor.lifecycle.suspend_all import SuspendAll
from atoll.supervisor.metering import make_metrics
from atoll.supervisor.monitors.audit_anchor import AuditAnchoring
from atoll.supervisor.monitors.audit_late import AuditLateness
from atoll.supervisor.monitors.automatic_snapshots import AutomaticSnapshots
from atoll.supervisor.monitors.disk_pressure import DiskPressure
from atoll.supervisor.monitors.lease_expiry import LeaseExpiry
from atoll.supervisor.monitors.recoveries import Recoveries
from atoll.supervisor.monitors.schedules import Schedules
from atoll.supervisor.monitors.sleeping_links import SleepingLinks
from atoll.supervisor.monitors.suspended_wakes import SuspendedWakes
from atoll.supervisor.monitors.unplug import UnplugMonitor
from atoll.supervisor.monitors.usage import Usage
from atoll.supervisor.monitors.wake_timers import WakeTimers
from atoll.supervisor.operations import (
    Awakenings,
    Copies,
    Sleeps,
    make_creation,
    make_delegation_expiry,
    make_diffs,
    make_fsck,
    make_host_memory_monitor,
    make_idle_monitor,
    make_idle_sandboxes,
    make_kills,
    make_leftovers,
    make_limit_changes,
    make_naps,
    make_promotions,
    make_recoveries,
    make_unplugs,
    make_unresponsive_guests,
    make_wake_timers,
)
from atoll.supervisor.own_exit import Keeper, may_end_holder
from atoll.supervisor.recovery.adoption import Adoption
from atoll.supervisor.recovery.reconcile import Reconcile
from atoll.supervisor.recovery.row_repair import RowRepair
from atoll.supervisor.settings import Settings
from atoll.supervisor.state.clock import Clock
from atoll.supervisor.storage.engine_uses import EngineUses
from atoll.supervisor.storage.images import kept_images
from atoll.supervisor.templates.building import Templates, forget_steps
from atoll.supervisor.tenants.disk_report import DiskReports

_FINISH_S = 60.0
# The next supervisor goes on with the erasing, but the client that stops this one has to wait.
_ERASE_S = 10.0
_log = logging.getLogger(__name__)


class System:
    """Holds one of each part. Call ``start`` before anything else, and ``aclose`` at the end.

    Args:
        home: The directory of all files.
        settings: The settings from the environment.
        rooms: The parts from the other rooms.
        clock: The host's clocks.
    """

    def __init__(self, home: Home, settings: Settings, rooms: Rooms, clock: Clock | None = None) -> None:
        self.home = home
        self.settings = settings
        self._rooms = rooms
        state = self._state = State(home, settings, rooms, clock or Clock())
        storage = self._storage = Storage(home, settings, rooms, state)
        self.trash = storage.trash
        machines = self._machines = Machines(home, settings, rooms, state, storage)
        tenants = Tenants(home, settings, rooms, state, storage, machines)
        steps = self._steps = Steps(rooms, state, storage, machines, tenants)
        sleeps = Sleeps(state, storage, machines, steps)
        awakenings = Awakenings(rooms, state, storage, machines, tenants, steps, sleeps)
        self.unplugs = make_unplugs(state, machines, steps, sleeps)
        self._unplug_monitor = UnplugMonitor(state.inventory, state.alarms, self.unplugs, state.tasks)
        self._naps = make_naps(state, storage, machines, tenants, steps, sleeps, awakenings)
        copies = Copies(settings, rooms, state, storage, machines, tenants, steps, self._naps)
        self.tasks, self.database, self.inventory = state.tasks, state.database, state.inventory
        self.paths, self.images, self.volumes = state.paths, storage.images, storage.volumes
        self.trees, self.verification, self.digests = storage.trees, storage.verification, storage.digests
        self.running_machines, self.pool, self.acts = machines.running, machines.pool, state.acts
        self.prestarted, self.agents = machines.prestarted, machines.agents
        self.teams, self.keys, self.quotas = tenants.teams, tenants.keys, tenants.quotas
        self.volume_quotas, self.secrets = tenants.volume_quotas, tenants.secrets
        self.delegations, self.client_lines = tenants.delegations, tenants.client_lines
        self.models, self.model_ledger = tenants.models, tenants.model_ledger
        self._model_billing = make_model_billing(rooms, state, tenants)
        self.history, self.egress, self.decisions = steps.history, steps.egress, state.decisions
        self.registries, self.home_hooks = rooms.registries, steps.home_hooks
        self.kills = make_kills(state, storage, machines, steps)
        self.promotions = make_promotions(
            state, storage, machines, tenants, steps, self._naps, copies, self.kills
        )
        self.diffs = make_diffs(rooms, state, machines, steps)
        self.pauses, self.suspends = sleeps.pauses, sleeps.suspends
        self.wakes, self.rollback = awakenings.wakes, awakenings.rollback
        self.idle = make_idle_monitor(settings, state, machines, tenants, steps, sleeps, awakenings)
        self.look_at_memory = machines.host_memory.look
        self._idle_sandboxes = make_idle_sandboxes(state, steps, sleeps)
        self.host_memory = make_host_memory_monitor(state, machines, steps, self._idle_sandboxes)
        self.recoveries = make_recoveries(state, awakenings)
        self._anchoring = AuditAnchoring(settings.anchor_argv(), state.audit.anchor)
        judge = rooms.inspection if settings.audit_late == "refuse" else None
        self._lateness = AuditLateness(state.audit, None if judge is None else judge.refuse)
        self.delegation_expiry = make_delegation_expiry(state, steps, sleeps)
        self.unresponsive = make_unresponsive_guests(state, machines)
        self.wake_timers = make_wake_timers(state, awakenings)
        self.creation = make_creation(rooms, state, storage, machines, tenants, steps)
        self.snapshots, self.forks = copies.snapshots, copies.forks
        parts = (storage.templates, storage.steps, self.inventory, self.snapshots, self.kills)
        self.templates = Templates(*parts, self.teams.quotas_of, copied_disks=rooms.copied_disks)
        self._serve(state, storage, machines, tenants, steps)
        self._watch(rooms, state, storage, machines)
        self._keep_house(rooms, state, storage, tenants)

    def _serve(
        self, state: State, storage: Storage, machines: Machines, tenants: Tenants, steps: Steps
    ) -> None:
        """Make the other parts that clients call, besides the operations."""
        at_once = self.settings.restores_at_once
        self.suspend_all = SuspendAll(self.inventory, self.suspends, self.tasks, at_once)
        self.image_requests = ImageRequests(self.images, self.pool, self.quotas)
        self.callers = Callers(self.inventory, self.kills, self.tasks, state.clock.boot_s)
        self.defaults = Defaults(inventory=self.inventory, images=self.images, agents=machines.agents)
        self.services = Services(inventory=self.inventory, wakes=self.wakes, agents=machines.agents)
        self.limits = make_limit_changes(state, machines, tenants, steps)
        self.asks = make_asks(self.settings, self._rooms, state, self.limits)
        self._alerting = Alerting(self.settings, state, self._model_billing)
        self.metrics = make_metrics(state, machines, tenants, steps, self.asks.table)
        self.alerts = self._alerting.book
        self.team_deletion = tenants.team_deletion

    def _watch(self, rooms: Rooms, state: State, storage: Storage, machines: Machines) -> None:
        """Make the monitors of the sandboxes."""
        self.leases = LeaseExpiry(
            inventory=self.inventory,
            leases=state.leases,
            due=state.due,
            quotas=self.quotas,
            suspends=self.suspends,
            kills=self.kills,
            tasks=self.tasks,
            tell=state.journal.tell,
        )
        self.holds = Holds(self.inventory, state.leases, self.tasks)
        self.usage = Usage(
            quotas=self.quotas,
            means=machines.means,
            paths=self.paths,
            layers=rooms.layers,
            agents=machines.agents,
        )
        self.leftovers = make_leftovers(rooms, state, storage, machines)
        self._reconcile = self._make_reconcile(rooms, state, storage, machines)
        dialling = self.dialling = Dialling(self.inventory, self.wakes, self.tasks, self.idle.used)
        self.neighbours = Neighbours(self.inventory, dialling, self.wakes, self.tasks, state.clock.boot_s)
        self.egress.reach = self.neighbours.reach
        self.dial_socket = DialSocket(self.home.dial_socket, self.dialling)
        self.schedules = Schedules(
            inventory=self.inventory,
            wakes=self.wakes,
            suspends=self.suspends,
            leases=self.leases,
            agents=machines.agents,
            clients=lambda: self.dial_socket.clients,
            tasks=self.tasks,
            unix_s=state.clock.unix_s,
            tell=state.journal.tell,
        )
        self.automatic_snapshots = AutomaticSnapshots(
            inventory=self.inventory,
            snapshots=self.snapshots,
            layers=rooms.layers,
            tasks=self.tasks,
            clock=state.clock,
            tell=state.journal.tell,
        )
        self.sleeping_links = SleepingLinks(self.inventory, self._steps.sandbox_links)

    def _keep_house(self, rooms: Rooms, state: State, storage: Storage, tenants: Tenants) -> None:
        """Make the parts that keep the home in order."""
        self.keeper = Keeper(self.settings.idle_exit_s, self._look)
        self.fsck = make_fsck(rooms, state, storage)
        self.engine_uses = EngineUses(self.inventory, rooms.programs)
        self.disk_pressure = DiskPressure(
            inventory=self.inventory,
            idle=self._idle_sandboxes,
            tasks=self.tasks,
            disk=partial(disk_usage, self.home.path),
            low_percent=self.settings.disk_low_percent,
            steps=(
                ("erasing what was given up", self.trash.settle),
                ("ending warm machines", self.pool.drain),
                (
                    "forgetting steps of builds",
                    partial(forget_steps, self.templates, self.inventory, self.trash),
                ),
                ("erasing images without a name", partial(self.leftovers.collect, images=True)),
                ("erasing snapshots", partial(self.automatic_snapshots.tidy, newest_only=True)),
            ),
            tell=state.journal.tell,
            unix_s=state.clock.unix_s,
        )
        self.drain_gate = state.drain_gate
        self.drains = Drains(
            inventory=self.inventory,
            gate=state.drain_gate,
            suspends=self.suspends,
            wakes=self.wakes,
            tasks=self.tasks,
            unix_s=state.clock.unix_s,
            at_once=self.settings.restores_at_once,
        )
        self.disk_reports = DiskReports(
            inventory=self.inventory,
            volumes=self.volumes,
            images=partial(kept_images, rooms.images),
            templates=storage.templates,
            sizes=tenants.disk_sizes,
            paths=self.paths,
            leftovers=self.leftovers.find,
            disk=partial(disk_usage, self.home.path),
        )

    def _make_reconcile(self, rooms: Rooms, state: State, storage: Storage, machines: Machines) -> Reconcile:
        """Make the part that recovers the sandboxes at the start."""
        repair = RowRepair(self.inventory)
        return Reconcile(
            inventory=self.inventory,
            operations=state.operations,
            paths=self.paths,
            layers=rooms.layers,
            links=rooms.links,
            running_machines=machines.running,
            kills=self.kills,
            leftovers=self.leftovers,
            trash=self.trash,
            adoption=Adoption(
                paths=self.paths,
                leases=state.leases,
                links=rooms.links,
                egress=self._steps.egress,
                sandbox_planner=self._steps.sandbox_planner,
                running_machines=machines.running,
                agents=machines.agents,
                attachment=self._steps.attachment,
                watcher=self._steps.paused_wakes,
                checksums=storage.checksums,
                repair=repair,
                unplugs=self.unplugs,
            ),
            repair=repair,
            unplugs=self.unplugs,
        )

    async def start(self) -> None:
        """Open the database, adopt the sandboxes that still run, and accept clients on the dial socket."""
        await asyncio.to_thread(self.drain_gate.load)
        await self._state.open()
        self._lateness.start()
        tenants = (self.teams, self.keys, self.delegations, self.secrets)
        for store in (*tenants, self.inventory, self.volumes, self.templates, self.models):
            await store.load()
        self._alerting.load()
        await asyncio.to_thread(self._rooms.programs.keep)
        self.trash.resume()
        await self.egress.start()
        await self._reconcile.run()
        await self.templates.start()
        self._storage.compaction.look()
        await self._rooms.links.start()
        self.egress.forget_others()
        self.pool.start()
        await asyncio.to_thread(self._machines.prestarted.sweep)
        self._naps.end_cut_short()
        await self.holds.start()
        monitors = (self._unplug_monitor, self.leases, self.idle, self.history, self.neighbours)
        for each in (*monitors, self.dial_socket, self.disk_pressure, self.host_memory):
            each.start()
        if self.settings.checksum_mib_s:
            self._storage.background_checksums.start()
        self.tasks.watch(self._state.journal.keep_small(self._running_ids))
        self.tasks.watch(self.templates.tend())
        self.tasks.watch(self.egress.look_ahead())
        self.drains.go_on()
        sandboxes = (self.schedules, self.automatic_snapshots, self.recoveries, self.unresponsive)
        times = (self.wake_timers, self.delegation_expiry, self.sleeping_links)
        for watch in (*sandboxes, *times, self._model_billing, self._anchoring):
            self.tasks.watch(watch.run())
        self.tasks.watch(self._steps.paused_wakes.run(self.wakes.use))
        self._steps.suspended_wakes.start(self.wakes.use)
        if self._state.latency_monitor:
            self.tasks.watch(self._state.latency_monitor.run())

    async def fall_asleep(self) -> None:
        """Suspend sandboxes that were still being made when a client asked to stop.

        No clients are left by now.
        """
        self._close_monitors()
        await self.tasks.settle(_FINISH_S)
        for sandbox_id, why in (await self.suspend_all.run()).failed.items():
            _log.warning("sandbox %s keeps running without a supervisor: %s", sandbox_id, why)

    def _close_monitors(self) -> None:
        """Begin nothing by itself any more."""
        for each in (self.automatic_snapshots, self.neighbours, *self._wakers()):
            each.close()

    def _wakers(self) -> tuple[Schedules, Recoveries, WakeTimers, SuspendedWakes]:
        """The monitors that make sandboxes run without a client."""
        return self.schedules, self.recoveries, self.wake_timers, self._steps.suspended_wakes

    def _running_ids(self) -> list[str]:
        return [one.sandbox_id for one in self.inventory.sandboxes() if one.row.state == "running"]

    async def aclose(self) -> None:
        """Finish the operations in progress, end the warm pool, and free everything.

        Sandboxes keep their states.
        """
        self._close_monitors()
        await self.dial_socket.aclose()
        # Close this first, so that machines that end now lead to no new prestarted one.
        await self._machines.prestarted.aclose()
        await self.tasks.finish(_FINISH_S)
        await self.pool.aclose()
        everything = self.inventory.sandboxes()
        for sandbox in everything:
            if sandbox.running is not None:
                sandbox.running.close()
        stay = not may_end_holder(one.row.state for one in everything)
        await self._rooms.links.aclose(stay=stay)
        if not stay:
            await self._model_billing.finish()
        await self.egress.aclose(stay=stay)
        await self.trash.aclose(_ERASE_S)
        self._alerting.close()
        await self._state.aclose()
        await self._anchoring.finish()

    def _look(self) -> tuple[tuple[str, ...], int, bool]:
        states = tuple(sandbox.row.state for sandbox in self.inventory.sandboxes())
        owners = (self.tasks, self.trash, self._storage.background_checksums, self.templates.rows)
        busy = any(each.busy for each in owners)
        waiting = any(each.waiting for each in (self.holds, *self._wakers()))
        return states, self.dial_socket.clients, busy or waiting
