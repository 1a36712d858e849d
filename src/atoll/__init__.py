"""A whole persistent computer for every agent: it sleeps, wakes where it left off, forks and rolls back.

For example::

    from atoll import Sandbox

    with Sandbox.create() as sandbox:
        print(sandbox.run("uname -a").stdout)

This module has the names that most programs use. All errors are in ``atoll.errors``, all values in
``atoll.types``, and all classes with methods in ``atoll.sdk``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atoll.version import __version__

if TYPE_CHECKING:
    from types import ModuleType

    from atoll.errors import AtollError
    from atoll.sdk import (
        Asks,
        AsyncAsks,
        AsyncAudit,
        AsyncHousekeeping,
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
        Audit,
        Housekeeping,
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
        Boot,
        DelegationSpec,
        ExecResult,
        HealthCheck,
        Hosting,
        Inject,
        Lifecycle,
        Limits,
        Policy,
        Quotas,
        Rule,
        SandboxInfo,
        ServiceSpec,
        Snapshot,
        SnapshotInfo,
        Template,
        TemplateSpec,
        VolumeMount,
        Wait,
    )

__all__ = [
    "Asks",
    "AsyncAsks",
    "AsyncAudit",
    "AsyncHousekeeping",
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
    "Audit",
    "Boot",
    "DelegationSpec",
    "ExecResult",
    "HealthCheck",
    "Hosting",
    "Housekeeping",
    "Images",
    "Inject",
    "Keys",
    "Lifecycle",
    "Limits",
    "NO_LIMIT",
    "Policy",
    "Process",
    "Quotas",
    "Rule",
    "Sandbox",
    "SandboxInfo",
    "Secrets",
    "ServiceSpec",
    "Snapshot",
    "SnapshotInfo",
    "Snapshots",
    "Supervisor",
    "Teams",
    "Template",
    "TemplateSpec",
    "Templates",
    "Terminal",
    "VolumeMount",
    "Volumes",
    "Wait",
    "__version__",
]


def _room(name: str) -> ModuleType:
    """The room that a name comes from. Importing ``atoll.sdk`` loads none of its classes."""
    from importlib import import_module

    sdk = import_module("atoll.sdk")
    if name in sdk.__all__:
        return sdk
    return import_module("atoll.errors" if name == "AtollError" else "atoll.types")


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in ("errors", "sdk", "types"):
        return import_module(f"atoll.{name}")
    if name in __all__:
        value: object = getattr(_room(name), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
