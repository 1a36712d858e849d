"""A whole persistent computer for every agent: it sleeps, wakes where it left off, forks and rolls back.

For example::

    from atoll import Sandbox

    with Sandbox.create() as sandbox:
        print(sandbox.run("uname -a").stdout)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atoll.version import __version__

if TYPE_CHECKING:
    from atoll.errors import (
        AtollError,
        DeadlineError,
        ExecFailedError,
        ExecTimeoutError,
        FileError,
        InvalidSpecError,
        NotFoundError,
        QuotaError,
        SandboxCrashedError,
        SandboxNotFoundError,
        StateError,
        UnsupportedError,
    )
    from atoll.sdk import (
        AsyncImages,
        AsyncKeys,
        AsyncProcess,
        AsyncSandbox,
        AsyncSecrets,
        AsyncSnapshots,
        AsyncSupervisor,
        AsyncTeams,
        AsyncTemplates,
        AsyncTerminal,
        AsyncVolumes,
        Images,
        Keys,
        Process,
        Sandbox,
        Secrets,
        Snapshots,
        Supervisor,
        Teams,
        Templates,
        Terminal,
        Volumes,
    )
    from atoll.types import (
        NO_LIMIT,
        ExecResult,
        FileInfo,
        ImageInfo,
        Inject,
        Lifecycle,
        Limits,
        MemoryKill,
        Output,
        Policy,
        ProcessInfo,
        Progress,
        Quotas,
        Rule,
        SandboxInfo,
        SandboxStats,
        SecretInfo,
        SnapshotInfo,
        TerminalSize,
        WatchEvent,
    )

__all__ = [
    "AsyncImages",
    "AsyncKeys",
    "AsyncProcess",
    "AsyncSandbox",
    "AsyncSecrets",
    "AsyncSnapshots",
    "AsyncSupervisor",
    "AsyncTeams",
    "AsyncTemplates",
    "AsyncTerminal",
    "AsyncVolumes",
    "AtollError",
    "DeadlineError",
    "ExecFailedError",
    "ExecResult",
    "ExecTimeoutError",
    "FileError",
    "FileInfo",
    "ImageInfo",
    "Images",
    "Inject",
    "InvalidSpecError",
    "Keys",
    "Lifecycle",
    "Limits",
    "MemoryKill",
    "NO_LIMIT",
    "NotFoundError",
    "Output",
    "Policy",
    "Process",
    "ProcessInfo",
    "Progress",
    "QuotaError",
    "Quotas",
    "Rule",
    "Sandbox",
    "SandboxCrashedError",
    "SandboxInfo",
    "SandboxNotFoundError",
    "SandboxStats",
    "SecretInfo",
    "Secrets",
    "SnapshotInfo",
    "Snapshots",
    "StateError",
    "Supervisor",
    "Teams",
    "Templates",
    "Terminal",
    "TerminalSize",
    "UnsupportedError",
    "Volumes",
    "WatchEvent",
    "__version__",
]

_TYPES = frozenset(
    {
        "ExecResult",
        "FileInfo",
        "ImageInfo",
        "Inject",
        "Lifecycle",
        "Limits",
        "MemoryKill",
        "NO_LIMIT",
        "Output",
        "Policy",
        "ProcessInfo",
        "Progress",
        "Quotas",
        "Rule",
        "SandboxInfo",
        "SandboxStats",
        "SecretInfo",
        "SnapshotInfo",
        "TerminalSize",
        "WatchEvent",
    }
)


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in ("errors", "types"):
        return import_module(f"atoll.{name}")
    if name in __all__:
        room = "atoll.errors" if name.endswith("Error") else "atoll.types" if name in _TYPES else "atoll.sdk"
        value: object = getattr(import_module(room), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
