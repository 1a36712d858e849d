"""Reports in plain words each problem that can stop a sandbox from running. Needs no supervisor."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Literal

from atoll.errors import AtollError
from atoll.host import (
    DiskUsage,
    Home,
    agent_path,
    check_host,
    check_programs,
    disk_usage,
    read_memory,
    runsc_path,
)
from atoll.images import Images, ready_base
from atoll.protocol import DoctorReport, Finding
from atoll.supervisor import tracing
from atoll.supervisor.lifecycle.ask_pushes import MISSING, MISSING_HINT, is_installed
from atoll.supervisor.machines.default_limits import KEEP_FREE_PERCENT, default_limits, disk_left
from atoll.supervisor.machines.enforcement import Means, holding
from atoll.supervisor.machines.host_memory import HostMemoryGauge
from atoll.supervisor.settings import Settings, read_settings
from atoll.supervisor.state.drain_gate import DrainGate
from atoll.types import HostMemory

GIB = 1 << 30
_LITTLE_BYTES = 2 * GIB


def examine(home: Home) -> DoctorReport:
    """Examine this host, by real attempts where possible."""
    checks = asyncio.run(check_host(home))
    findings = [
        Finding(name=check.name, level=check.level, message=check.message, remedy=check.remedy)
        for check in checks
    ]
    if any(finding.name == "home" and finding.level == "error" for finding in findings):
        # the rest was not examined, or is part of it
        return report([*findings, programs_finding()])
    lacks_ids = any(check.name == "one id" for check in checks)
    good = {check.name for check in checks if check.level == "ok"}
    engine_disks = any(check.message.startswith("the engine's own") for check in checks)
    settings = read_settings(os.environ)
    means = Means(
        cgroups="cgroups" in good,
        shaping="shaping" in good,
        layers=not engine_disks,
    )
    return report(
        [
            *findings,
            limits_finding(means),
            defaults_finding(means, read_memory().total_bytes, disk_usage(home.path)),
            memory_finding(HostMemoryGauge(settings.host_memory_free_mib, Path(settings.meminfo)).look()),
            programs_finding(),
            image_finding(home, lacks_ids=lacks_ids),
            database_finding(home),
            drain_finding(home),
            *ask_findings(settings),
            *trace_findings(settings),
            space_finding(disk_usage(home.path), settings.disk_low_percent),
        ]
    )


def report(findings: list[Finding]) -> DoctorReport:
    """The report of the findings: if one is an error, no sandbox can run."""
    return DoctorReport(fit=all(finding.level != "error" for finding in findings), findings=findings)


def limits_finding(means: Means) -> Finding:
    """How each limit is enforced here."""
    by_hold: dict[str, list[str]] = {}
    for name, held in holding(means).items():
        by_hold.setdefault(held.hold, []).append(name)
    message = "; ".join(f"{hold}: {', '.join(names)}" for hold, names in by_hold.items())
    return Finding(name="limits", level="note" if "unavailable" in by_hold else "ok", message=message)


def defaults_finding(means: Means, memory_bytes: int, disk: DiskUsage) -> Finding:
    """The finding about default limits: a sandbox's share of the host, and the disk that is left for all."""
    limits = default_limits(memory_bytes, disk.total)
    text = f"{limits.memory_mib:,} MiB of memory, {limits.processes:,} processes, {limits.open_files:,} open files"
    if not means.layers:
        return Finding(
            name="defaults",
            level="note",
            message=f"{text}; no limit on the disk, because the engine keeps it",
        )
    left = disk_left(disk)
    text += (
        f", {limits.disk_mib:,} MiB of disk, and {KEEP_FREE_PERCENT} % of the host's disk stay free: "
        f"{left / GIB:.1f} GiB are left for all sandboxes together"
    )
    if left >= _LITTLE_BYTES:
        return Finding(name="defaults", level="ok", message=text)
    remedy = "free some space, or give sandboxes a limit of their own: `atoll limits SANDBOX --disk MIB`"
    return Finding(name="defaults", level="warning", message=text, remedy=remedy)


def ask_findings(settings: Settings) -> list[Finding]:
    """Whether the channels that asks are told by can be used, if one is set."""
    if settings.ask_notify and not is_installed():
        return [Finding(name="asks", level="warning", message=MISSING, remedy=MISSING_HINT)]
    told = {"a webhook": settings.ask_webhook, "pushes": settings.ask_notify}
    channels = [name for name, value in told.items() if value]
    return [Finding(name="asks", level="ok", message=f"told by {' and '.join(channels)}")] if channels else []


def trace_findings(settings: Settings) -> list[Finding]:
    """Whether spans can be sent, if a collector is set."""
    if not settings.otel_endpoint:
        return []
    if not tracing.is_installed():
        return [Finding(name="traces", level="warning", message=tracing.MISSING, remedy=tracing.MISSING_HINT)]
    return [Finding(name="traces", level="ok", message=f"sent to {settings.otel_endpoint}")]


def memory_finding(memory: HostMemory) -> Finding:
    """Whether so little of the host's memory is available that sandboxes give way."""
    message = (
        f"{memory.available_bytes / GIB:.1f} of {memory.total_bytes / GIB:.1f} GiB are available, "
        f"and sandboxes leave {memory.kept_free_bytes / GIB:.1f} GiB free"
    )
    if memory.spare_bytes >= 0:
        return Finding(name="memory", level="ok", message=message)
    return Finding(
        name="memory",
        level="warning",
        message=f"{message}: none starts or wakes, and those that grow are killed",
        remedy="`atoll top` says what sandboxes use; suspend or kill some, or end other programs of the host",
    )


def database_finding(home: Home) -> Finding:
    """Whether the home's database was once found damaged and replaced."""
    aside = home.database.with_name(f"{home.database.name}.damaged")
    if not aside.exists():
        return Finding(name="database", level="ok", message="no damaged database was found")
    return Finding(
        name="database",
        level="warning",
        message="the database was damaged; atoll restored sandboxes and snapshots from their copies",
        remedy=f"compare `atoll ls` and `atoll snapshot ls` with what you expect, check the disk, then remove {aside}",
    )


def drain_finding(home: Home) -> Finding:
    """Whether the home is drained, so that nothing starts or wakes."""
    gate = DrainGate(home.drain)
    gate.load()
    if not gate.is_closed:
        return Finding(name="drain", level="ok", message="sandboxes may start and wake")
    return Finding(
        name="drain",
        level="warning",
        message="this home is drained: no sandbox starts or wakes",
        remedy="atoll undrain",
    )


def space_finding(disk: DiskUsage, low_percent: float) -> Finding:
    """Whether so little of the disk is free that atoll makes room."""
    percent = 100 * disk.free / disk.total if disk.total else 0.0
    message = f"{disk.free / GIB:.1f} GiB of the home's file system are free, {percent:.0f} %"
    if percent >= low_percent:
        return Finding(name="disk space", level="ok", message=message)
    return Finding(
        name="disk space",
        level="warning",
        message=f"{message}: below {low_percent:g} %, atoll suspends idle sandboxes and drops what it can get again",
        remedy="`atoll du` says what uses the disk; kill sandboxes, or delete snapshots",
    )


def programs_finding() -> Finding:
    """Whether the programs of this package are present."""
    try:
        check_programs()
        paths = [runsc_path(), agent_path()]
    except AtollError as error:
        return Finding(name="package", level="error", message=error.message, remedy=error.remedy)
    return Finding(
        name="package", level="ok", message=" and ".join(path.name for path in paths) + " are there"
    )


def image_finding(home: Home, *, lacks_ids: bool) -> Finding:
    """Whether the image ``base`` is present, or where it can come from."""
    if Images(home.images).get("base"):
        return _image("ok", "the image base is there")
    if ready_base(os.uname().machine):
        return _image("ok", "the package atoll-base contains the image base, ready to use")
    if lacks_ids:
        message = (
            "this user cannot build the image base with only one id, and the package atoll-base is missing"
        )
        return _image("error", message, "pip install 'atoll[base]'")
    if shutil.which(
        "mmdebstrap", path=os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"
    ):
        return _image("ok", "mmdebstrap can build the image base")
    debian = Path("/etc/debian_version").exists()
    message = (
        "only Debian's mmdebstrap can build the image base; the package atoll-base contains it, ready to use"
    )
    return _image("error", message, "sudo apt install mmdebstrap" if debian else "pip install 'atoll[base]'")


def _image(level: Literal["ok", "error"], message: str, remedy: str | None = None) -> Finding:
    return Finding(name="image", level=level, message=message, remedy=remedy)
