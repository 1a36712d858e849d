"""The bundle's ``config.json``: what the guest is given to live in.

A restore compares it with the one of the checkpoint: mounts (but not their sources), limits, capabilities and ``argv``
must be the same, host name, environment, root and network may differ.
"""

from __future__ import annotations

import os
from typing import Any

from atoll.engines.base import MachinePlan

OPEN_FILES = 1_048_576
PROCESSES = 65_536

# Process 1 is root of its own kernel, so it gets everything that a root has; none of it is a right on the host.
CAPABILITIES = tuple(
    f"CAP_{name}"
    for name in (
        "AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID "
        "IPC_LOCK IPC_OWNER KILL LEASE LINUX_IMMUTABLE MAC_ADMIN MAC_OVERRIDE MKNOD NET_ADMIN NET_BIND_SERVICE "
        "NET_BROADCAST NET_RAW SETFCAP SETGID SETPCAP SETUID SYSLOG SYS_ADMIN SYS_BOOT SYS_CHROOT SYS_MODULE "
        "SYS_NICE SYS_PACCT SYS_PTRACE SYS_RAWIO SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG WAKE_ALARM"
    ).split()
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
        *(
            {"destination": bind.target, "type": "bind", "source": bind.source, "options": ["rbind", "ro"]}
            for bind in plan.binds
        ),
    ]


def bundle_spec(plan: MachinePlan) -> dict[str, Any]:
    """The OCI runtime specification of ``plan``."""
    capabilities = list(CAPABILITIES)
    return {
        "ociVersion": "1.1.0",
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
            "namespaces": [
                {"type": "pid"},
                {"type": "ipc"},
                {"type": "uts"},
                {"type": "mount"},
                {"type": "network", "path": os.fspath(plan.netns)},
            ],
        },
    }
