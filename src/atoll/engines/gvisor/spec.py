"""The bundle's ``config.json``: what the guest is given to live in.

A restore compares it with the one of the checkpoint: mounts (but not their sources), limits, capabilities and
``argv`` must be the same; host name, environment, root and network may differ.
"""

from __future__ import annotations

import os
from typing import Any

from atoll.engines.base import Bind, MachinePlan

# Our own annotation, see native/patches/read-ahead.toml. A guest that has just been restored needs the processors
# for its first answer.
_READ_AHEAD = "atoll.read-ahead-after-ms"
_READ_AHEAD_MS = 300
_NEVER = -1

OPEN_FILES = 1_048_576
PROCESSES = 65_536

# Process 1 is root of its own kernel, so it gets all that a root has; none of it is a right on the host.
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
    # Mounts but the root are of the kind that asks the host again each time: --file-access-mounts=shared.
    options = ["rbind", "rw", "nosuid", "nodev"] if bind.shared else ["rbind", "ro"]
    return {"destination": bind.target, "type": "bind", "source": bind.source, "options": options}


def bundle_spec(plan: MachinePlan) -> dict[str, Any]:
    """The OCI runtime specification of ``plan``."""
    capabilities = list(CAPABILITIES)
    return {
        "ociVersion": "1.1.0",
        "annotations": {_READ_AHEAD: str(_READ_AHEAD_MS if plan.read_ahead else _NEVER)},
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
            # What the guest believes; the cgroup is what holds it to that.
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
