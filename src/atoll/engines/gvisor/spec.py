"""The bundle's ``config.json``: the guest's environment.

A restore compares it with the checkpoint's. Mounts (but not their sources), limits, capabilities and
``argv`` must be the same. Host name, environment, root and network may differ.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from atoll.engines.base import Bind, MachinePlan, PrestartPlan
from atoll.engines.gvisor.limiting import guest_limits
from atoll.engines.gvisor.read_ahead import read_ahead_annotations
from atoll.types.internal import from_json

# atoll's own annotation, see native/patches/lazy-pages.
_PAGES_GROW = "atoll.pages-grow"
# Later checkpoints refer to the files of the restored checkpoint, see native/patches/earlier-pages.
_REFERS = "atoll.refers"
# The sentry gets this before there is a guest, see native/patches/limits.
_LIMITS = "atoll.limits"
# Only atoll reads it.
_PLACE = "atoll.place"

OPEN_FILES = 1_048_576
PROCESSES = 65_536

# Process 1 is root of its own kernel, so it gets all capabilities of root. No capability is a right on the
# host.
CAPABILITIES = (
    "CAP_AUDIT_CONTROL",
    "CAP_AUDIT_READ",
    "CAP_AUDIT_WRITE",
    "CAP_BLOCK_SUSPEND",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_KILL",
    "CAP_LEASE",
    "CAP_LINUX_IMMUTABLE",
    "CAP_MAC_ADMIN",
    "CAP_MAC_OVERRIDE",
    "CAP_MKNOD",
    "CAP_NET_ADMIN",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYSLOG",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_CHROOT",
    "CAP_SYS_MODULE",
    "CAP_SYS_NICE",
    "CAP_SYS_PACCT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_WAKE_ALARM",
)


def _mounts(plan: MachinePlan) -> list[dict[str, Any]]:
    def mount(target: str, kind: str, *options: str) -> dict[str, Any]:
        return {"destination": target, "type": kind, "source": kind, "options": list(options)}

    return [
        mount("/proc", "proc", "nosuid", "noexec", "nodev"),
        mount("/dev", "tmpfs", "nosuid", "mode=755", "size=64k"),
        mount("/dev/pts", "devpts", "nosuid", "noexec"),
        mount("/dev/mqueue", "mqueue", "nosuid", "noexec", "nodev"),
        mount("/dev/shm", "tmpfs", "nosuid", "nodev", "mode=1777"),
        mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
        mount("/tmp", "tmpfs", "nosuid", "nodev", "mode=1777"),
        mount("/run", "tmpfs", "nosuid", "nodev", "mode=755"),
        *(_bind(bind) for bind in plan.binds),
    ]


def _bind(bind: Bind) -> dict[str, Any]:
    # Every mount except the root asks the host again each time: --file-access-mounts=shared.
    # The gofer mounts it with these options for itself, and the sentry gets only the gofer's files. With "ro"
    # the host refuses writes even from a sentry that the guest has taken over.
    if not bind.shared:
        options = ["rbind", "ro"]
    elif bind.read_only:
        # Not "rbind": a mount of the host below it would stay writable.
        options = ["bind", "ro", "nosuid", "nodev"]
    else:
        options = ["rbind", "rw", "nosuid", "nodev"]
    return {"destination": bind.target, "type": "bind", "source": bind.source, "options": options}


def _annotations(plan: MachinePlan) -> dict[str, str]:
    return {
        _PAGES_GROW: str(plan.being_written).lower(),
        _REFERS: str(plan.earlier_pages is not None).lower(),
        **read_ahead_annotations(plan),
    }


def late_spec(plan: MachinePlan) -> dict[str, Any]:
    """Return the part of ``plan`` for a prestarted machine, see native/patches/prestarted/late-spec."""
    return {"Hostname": plan.hostname, "Annotations": _annotations(plan)}


def prestarted_spec(plan: PrestartPlan) -> dict[str, Any]:
    """Return the specification of a machine from ``plan`` alone."""
    machine_plan = MachinePlan(
        machine_id=plan.machine_id,
        state_dir=plan.state_dir,
        rootfs=plan.place,
        netns=plan.netns,
        argv=plan.argv,
        env=plan.env,
        binds=plan.binds,
        limits=plan.limits,
    )
    spec = bundle_spec(machine_plan)
    spec["annotations"][_PLACE] = str(plan.place)
    return spec


def place_of(config: Path) -> Path | None:
    """Return where the root of the machine with this ``config.json`` appears, if it was a prestarted machine.

    Raises:
        OSError, ValueError, LookupError, TypeError: The file is not as atoll wrote it.
    """
    annotations = from_json(config.read_bytes())["annotations"]
    return Path(annotations[_PLACE]) if _PLACE in annotations else None


def bundle_spec(plan: MachinePlan) -> dict[str, Any]:
    """Return the OCI runtime specification of ``plan``."""
    capabilities = list(CAPABILITIES)
    told = guest_limits(plan.limits, plan.keep_free_percent, plan.growth)
    if limited := [bind.target for bind in plan.binds if bind.limited]:
        told["Volumes"] = limited
    limits = msgspec.json.encode(told).decode()
    return {
        "ociVersion": "1.1.0",
        "annotations": _annotations(plan) | {_LIMITS: limits},
        "hostname": plan.hostname,
        "root": {"path": os.fspath(plan.rootfs), "readonly": False},
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(plan.argv),
            "env": list(plan.env),
            "cwd": "/",
            "noNewPrivileges": False,
            "capabilities": {
                kind: capabilities
                for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")
            },
            "rlimits": [
                {"type": "RLIMIT_NOFILE", "hard": OPEN_FILES, "soft": OPEN_FILES},
                {"type": "RLIMIT_NPROC", "hard": PROCESSES, "soft": PROCESSES},
            ],
        },
        "mounts": _mounts(plan),
        "linux": {
            # The guest sees this limit; the cgroup enforces it.
            "resources": {"memory": {"limit": plan.limits.memory_mib << 20}}
            if plan.limits.memory_mib
            else {},
            "namespaces": [
                {"type": "pid"},
                {"type": "ipc"},
                {"type": "uts"},
                {"type": "mount"},
                {"type": "network", "path": os.fspath(plan.netns)},
            ],
        },
    }
