"""The classes that programs use, offered through ``atoll``. Each class is loaded when first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from atoll.sdk._async.alerts import AsyncAlerts
    from atoll.sdk._async.asks import AsyncAsks
    from atoll.sdk._async.audit import AsyncAudit
    from atoll.sdk._async.code import AsyncCode
    from atoll.sdk._async.egress import AsyncEgress
    from atoll.sdk._async.files import AsyncFiles
    from atoll.sdk._async.forward import AsyncForward
    from atoll.sdk._async.housekeeping import AsyncHousekeeping
    from atoll.sdk._async.images import AsyncImages
    from atoll.sdk._async.keys import AsyncKeys
    from atoll.sdk._async.login import AsyncLogin
    from atoll.sdk._async.mcp import AsyncMcpAddress
    from atoll.sdk._async.models import AsyncModels
    from atoll.sdk._async.ports import AsyncPorts
    from atoll.sdk._async.process import AsyncProcess
    from atoll.sdk._async.processes import AsyncProcesses
    from atoll.sdk._async.sandbox import AsyncSandbox
    from atoll.sdk._async.secrets import AsyncSecrets
    from atoll.sdk._async.snapshots import AsyncSnapshots
    from atoll.sdk._async.supervisor import AsyncSupervisor
    from atoll.sdk._async.teams import AsyncTeams
    from atoll.sdk._async.templates import AsyncTemplates
    from atoll.sdk._async.terminal import AsyncTerminal
    from atoll.sdk._async.volumefiles import AsyncVolumeFiles
    from atoll.sdk._async.volumes import AsyncVolumes
    from atoll.sdk._async.watch import AsyncWatch
    from atoll.sdk._sync.alerts import Alerts
    from atoll.sdk._sync.asks import Asks
    from atoll.sdk._sync.audit import Audit
    from atoll.sdk._sync.code import Code
    from atoll.sdk._sync.egress import Egress
    from atoll.sdk._sync.files import Files
    from atoll.sdk._sync.forward import Forward
    from atoll.sdk._sync.housekeeping import Housekeeping
    from atoll.sdk._sync.images import Images
    from atoll.sdk._sync.keys import Keys
    from atoll.sdk._sync.login import Login
    from atoll.sdk._sync.mcp import McpAddress
    from atoll.sdk._sync.models import Models
    from atoll.sdk._sync.ports import Ports
    from atoll.sdk._sync.process import Process
    from atoll.sdk._sync.processes import Processes
    from atoll.sdk._sync.sandbox import Sandbox
    from atoll.sdk._sync.secrets import Secrets
    from atoll.sdk._sync.snapshots import Snapshots
    from atoll.sdk._sync.supervisor import Supervisor
    from atoll.sdk._sync.teams import Teams
    from atoll.sdk._sync.templates import Templates
    from atoll.sdk._sync.terminal import Terminal
    from atoll.sdk._sync.volumefiles import VolumeFiles
    from atoll.sdk._sync.volumes import Volumes
    from atoll.sdk._sync.watch import Watch

__all__ = [
    "AsyncAlerts",
    "AsyncAsks",
    "AsyncAudit",
    "AsyncCode",
    "AsyncEgress",
    "AsyncFiles",
    "AsyncForward",
    "AsyncHousekeeping",
    "AsyncImages",
    "AsyncKeys",
    "AsyncLogin",
    "AsyncMcpAddress",
    "AsyncModels",
    "AsyncPorts",
    "AsyncProcess",
    "AsyncProcesses",
    "AsyncSandbox",
    "AsyncSecrets",
    "AsyncSnapshots",
    "AsyncSupervisor",
    "AsyncTeams",
    "AsyncTemplates",
    "AsyncTerminal",
    "AsyncVolumeFiles",
    "AsyncVolumes",
    "AsyncWatch",
    "Alerts",
    "Asks",
    "Audit",
    "Code",
    "Egress",
    "Files",
    "Forward",
    "Housekeeping",
    "Images",
    "Keys",
    "Login",
    "McpAddress",
    "Models",
    "Ports",
    "Process",
    "Processes",
    "Sandbox",
    "Secrets",
    "Snapshots",
    "Supervisor",
    "Teams",
    "Templates",
    "Terminal",
    "VolumeFiles",
    "Volumes",
    "Watch",
]

_MODULES = {"mcpaddress": "mcp"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    kind = "_async" if name.startswith("Async") else "_sync"
    noun = name.removeprefix("Async").lower()
    value: object = getattr(import_module(f"atoll.sdk.{kind}.{_MODULES.get(noun, noun)}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
