"""Runs the supervisor once on the real host."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import resource
import signal
import time
from pathlib import Path

from atoll.engines import Engine, OwnDisk, can, engine_kind
from atoll.errors import AtollError, UnsupportedError
from atoll.host import (
    DiskKind,
    Home,
    agent_path,
    cgroup_root,
    earlier_program,
    edge_path,
    find_holder,
    is_mapped,
    note_program,
    open_cpu_latency,
    registry_hosts,
    relay_path,
    replace_holder,
)
from atoll.images import Images, PullSettings, Stacking, ready_base
from atoll.network import (
    GATEWAY_ADDRESS,
    Counts,
    EdgeProgram,
    HostSettings,
    Inspection,
    Links,
    Relay,
    RelayProgram,
    can_shape,
)
from atoll.policy import CLOSED
from atoll.secrets import home_authority
from atoll.snapshots import ImageRoots, Layers
from atoll.supervisor.api import ApiServer
from atoll.supervisor.assembly import Rooms
from atoll.supervisor.lifecycle.egress_spans import EgressSpans
from atoll.supervisor.lifecycle.package_registries import PackageRegistries
from atoll.supervisor.own_exit import may_end_holder
from atoll.supervisor.routes import make_api
from atoll.supervisor.settings import Settings
from atoll.supervisor.state.paths import Paths
from atoll.supervisor.stopping import Stopping
from atoll.supervisor.storage.binaries import Programs, engines_by_version
from atoll.supervisor.storage.trust import host_bundle
from atoll.supervisor.system import System
from atoll.supervisor.tracing import Tracing, tracing_to

_HOLDER_LOOK_S = 1.0
# Users of their own for the relay and the edge, which then can neither signal nor read the home's processes
# and files.
_RELAY_UID, _EDGE_UID = 65_532, 65_533
_log = logging.getLogger(__name__)


async def serve(home: Home, settings: Settings, disks: DiskKind, *, complete: bool) -> bool:
    """Serve clients until asked to stop or idle. Returns whether the holder may end too.

    Args:
        disks: How the disks of new sandboxes are kept.
        complete: Whether the kernel gives this process overlays with all features.
    """
    _raise_descriptor_limit()
    stopping = Stopping()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.ask)
    rooms = _real_rooms(home, settings, disks, complete)
    system = System(home, settings, rooms)
    app, tracing = make_api(system, stopping), tracing_to(settings.otel_endpoint)
    if tracing is not None:
        _trace_egress(tracing, system, rooms)
    api = ApiServer(home.api_socket, tracing.around(app) if tracing else app)
    await system.start()
    api.start()
    _log.info("supervisor %s serves %s, disks: %s", os.getpid(), home.path, disks)
    idle = asyncio.create_task(system.keeper.until_idle())
    asked = asyncio.create_task(stopping.asked())
    holding = asyncio.create_task(_keep_holder(home, rooms))
    try:
        await asyncio.wait({idle, asked}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (idle, asked, holding):
            task.cancel()
        system.holds.close()
        system.asks.close()
        system.alerts.close()
        await api.aclose()
        if stopping.asleep:
            await system.fall_asleep()
        await system.aclose()
        if tracing is not None:  # the edge has told its last
            await asyncio.to_thread(tracing.close)
        if rooms.cgroups is not None:
            rooms.cgroups.remove()
    _log.info("supervisor %s ends", os.getpid())
    return may_end_holder(sandbox.row.state for sandbox in system.inventory.sandboxes())


def _trace_egress(tracing: Tracing, system: System, rooms: Rooms) -> None:
    """Send spans of requests that the edge judges. Call it before the edge gets any policy."""
    if rooms.inspection is not None:
        spans = EgressSpans(tracing.record, time.monotonic)
        rooms.inspection.spans.listener = spans.heard
        system.client_lines.traced = spans.told


async def _keep_holder(home: Home, rooms: Rooms) -> None:
    """Replace a holder that died: without one, the sandboxes would die with this process."""
    while True:
        await asyncio.sleep(_HOLDER_LOOK_S)
        try:
            if find_holder(home) is None:
                _log.warning("the holder process died; starting another one")
                await asyncio.to_thread(replace_holder, home)
                rooms.relay.be_guarded()
                if rooms.inspection is not None:
                    rooms.inspection.be_guarded()
        except (AtollError, OSError) as error:
            _log.error("cannot start a holder process: %s", error)


def _real_rooms(home: Home, settings: Settings, disks: DiskKind, complete: bool) -> Rooms:
    kind = engine_kind(settings.engine)
    if disks == "engine" and not can(kind.engine_type, OwnDisk):
        raise UnsupportedError(
            f"the engine {kind.name!r} cannot keep disks, and this host can mount no layers",
            hint="give this user a range of subordinate ids, see `atoll doctor`, or use the engine gvisor",
        )
    cgroups = cgroup_root(home)
    programs = Programs(
        home.bin, kind.find(), agent_path(), engine_name=kind.name, engine_version=kind.version
    )

    def make(name: str, program: Path) -> Engine:
        # An earlier program, kept to wake its own sleepers, may not know these flags.
        is_current = program == programs.engine_path(programs.current)
        flags = settings.engine_flags.split() if is_current else ()
        return engine_kind(name).make(program, cgroups, flags)

    relay = Relay(_relay_program(home), HostSettings())
    return Rooms(
        engine=engines_by_version(programs, make),
        engine_type=lambda name: engine_kind(name).engine_type,
        programs=programs,
        images=Images(
            home.images,
            _pull_settings(settings),
            _stacking(disks, complete),
            ready_base(os.uname().machine),
        ),
        layers=Layers(home.layers, complete),
        image_roots=ImageRoots(complete=complete),
        relay=relay,
        links=Links(home.pins, relay),
        inspection=Inspection(_edge_program(home), relay, Counts(Paths(home).limits)),
        registries=PackageRegistries(lambda: registry_hosts(os.environ, settings.package_hosts)),
        authority=lambda: home_authority(home.authority).certificate,
        cgroups=cgroups,
        nameserver=GATEWAY_ADDRESS,
        complete=complete,
        engine_disks=disks == "engine",
        copied_disks=disks in ("engine", "copied"),
        shaping=can_shape(home.pins),
        cpu_latency=open_cpu_latency() if settings.cpu_latency == "auto" else None,
    )


def _relay_program(home: Home) -> RelayProgram:
    return RelayProgram(
        lambda: (str(relay_path()), *_user(_RELAY_UID)),
        home.run / "relay.sock",
        functools.partial(note_program, home, "relay"),
        functools.partial(earlier_program, home, "relay"),
        functools.partial(_open_holder, home),
    )


def _open_holder(home: Home) -> int | None:
    """A descriptor of the holder: the guests' namespaces and the relay live as long as that process."""
    holder = find_holder(home)
    try:
        return None if holder is None else os.pidfd_open(holder.pid, os.O_NONBLOCK)
    except ProcessLookupError:  # it has just ended, and is replaced
        return None


def _edge_program(home: Home) -> EdgeProgram:
    def config() -> dict[str, str]:
        authority = home_authority(home.authority)
        return {
            "ca_certificate": authority.certificate,
            "ca_key": authority.key,
            "roots": host_bundle(os.environ),
        }

    return EdgeProgram(
        lambda: (str(edge_path()), *_user(_EDGE_UID)),
        config,
        home.run / "edge.sock",
        functools.partial(note_program, home, "edge"),
        functools.partial(earlier_program, home, "edge"),
        functools.partial(_open_holder, home),
    )


def _user(number: int) -> tuple[str, ...]:
    """As root, an own user for a program, if this user namespace has that number."""
    return ("--user", str(number)) if os.geteuid() == 0 and is_mapped(number) else ()


def _pull_settings(settings: Settings) -> PullSettings:
    return PullSettings(
        mirrors=settings.mirrors(),
        insecure=settings.insecure(),
        private=tuple(CLOSED),
        most_bytes=int(settings.image_gib * (1 << 30)),
    )


def _stacking(disks: DiskKind, complete: bool) -> Stacking:
    if disks == "engine":
        return "none"
    return "trusted" if complete else "user"


def _raise_descriptor_limit() -> None:
    """Raise the limit to the host's maximum: a link needs nine descriptors, a relayed connection two."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
