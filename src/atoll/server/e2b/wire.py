"""Bodies of E2B's control plane as JSON. Unknown fields are ignored; bounds are checked as a body is read."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

# These bound the data that a client can make the server store or read in one request.
_Text = Annotated[str, Meta(max_length=65_536)]
_Labels = Annotated[dict[_Text, _Text], Meta(max_length=1_000)]
_Ref = Annotated[str, Meta(max_length=512)]
_Addresses = Annotated[list[_Ref], Meta(max_length=1_000)]
_ProxyWord = Annotated[str, Meta(max_length=255)]
Seconds = Annotated[int, Meta(ge=0, le=1 << 31)]

State = Literal["running", "paused"]
Level = Literal["debug", "info", "warn", "error"]


class _Asked(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A body that a client sends."""


class _Told(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A body that a client gets. Fields that are UNSET are left out."""


class AutoResume(_Asked, frozen=True, kw_only=True):
    """Whether any request wakes a paused sandbox."""

    enabled: bool = False


class Transform(_Asked, frozen=True, kw_only=True, omit_defaults=True):
    """Changes to requests."""

    headers: _Labels | None = None


class NetworkRule(_Asked, frozen=True, kw_only=True, omit_defaults=True):
    """The treatment of requests to one host."""

    transform: Transform | None = None


_Rules = Annotated[list[NetworkRule], Meta(max_length=100)]


class ProxyTls(_Asked, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the connection to the proxy itself is encrypted."""

    enabled: bool | None = None


class EgressProxy(_Asked, frozen=True, kw_only=True, omit_defaults=True):
    """The SOCKS5 proxy on the way out. Clients are never told the password."""

    address: _Ref
    username: _ProxyWord | None = None
    password: _ProxyWord | None = None
    tls: ProxyTls | None = None

    def __repr__(self) -> str:
        return f"EgressProxy(address={self.address!r}, …)"


class Network(_Asked, frozen=True, kw_only=True, omit_defaults=True):
    """The sandbox's inbound and outbound traffic. In an update only the outbound part counts."""

    allow_public_traffic: bool | None = None
    mask_request_host: Annotated[str, Meta(max_length=253)] | None = None
    allow_out: _Addresses | None = None
    deny_out: _Addresses | None = None
    egress_proxy: EgressProxy | None = None
    rules: Annotated[dict[_Ref, _Rules], Meta(max_length=100)] | None = None
    dns_servers: Annotated[list[_Ref], Meta(max_length=10)] | None = None
    https_ports: Annotated[list[int], Meta(max_length=100)] | None = None
    allow_internet_access: bool | None = field(default=None, name="allow_internet_access")


class VolumeMount(_Asked, frozen=True, kw_only=True):
    """A volume's name, and the path where it appears inside."""

    name: Annotated[str, Meta(max_length=128)]
    path: Annotated[str, Meta(max_length=4_096)]


class NewSandbox(_Asked, frozen=True, kw_only=True):
    """Body of ``POST /sandboxes`` and ``POST /v2/sandboxes``."""

    template_id: Annotated[str, Meta(max_length=512)] = field(name="templateID")
    timeout: Seconds | None = None
    auto_pause: bool | None = None
    auto_pause_memory: bool | None = None
    auto_resume: AutoResume | None = None
    secure: bool | None = None
    allow_internet_access: bool | None = field(default=None, name="allow_internet_access")
    network: Network | None = None
    metadata: _Labels | None = None
    env_vars: _Labels | None = None
    iam: dict[str, Any] | None = None
    volume_mounts: Annotated[list[VolumeMount], Meta(max_length=64)] | None = None


class Connect(_Asked, frozen=True, kw_only=True):
    """Body of ``POST …/connect``."""

    timeout: Seconds | None = None
    memory: bool | None = None


class Resume(_Asked, frozen=True, kw_only=True):
    """Body of ``POST …/resume``."""

    timeout: Seconds | None = None
    auto_pause: bool | None = None
    memory: bool | None = None


class Timeout(_Asked, frozen=True, kw_only=True):
    """Body of ``POST …/timeout``."""

    timeout: Seconds


class Refresh(_Asked, frozen=True, kw_only=True):
    """Body of ``POST …/refreshes``."""

    duration: Annotated[int, Meta(ge=0, le=3600)] | None = None


class Pause(_Asked, frozen=True, kw_only=True):
    """Body of ``POST …/pause``."""

    memory: bool | None = None
    require_healthy_guest: bool | None = None


class Fork(_Asked, frozen=True, kw_only=True):
    """Body of ``POST …/fork``."""

    timeout: Seconds | None = None
    count: Annotated[int, Meta(ge=-(1 << 31), le=1 << 31)] = 1


class NewSnapshot(_Asked, frozen=True, kw_only=True):
    """Body of ``POST …/snapshots``."""

    name: Annotated[str, Meta(max_length=256)] | None = None
    memory: bool | None = None


class Sandbox(_Told, frozen=True, kw_only=True):
    """A sandbox that the client can talk to."""

    template_id: str = field(name="templateID")
    sandbox_id: str = field(name="sandboxID")
    client_id: str = field(name="clientID")
    envd_version: str
    alias: str | UnsetType = UNSET
    envd_access_token: str | UnsetType = UNSET
    traffic_access_token: str | None | UnsetType = UNSET
    domain: str | None | UnsetType = UNSET


class OnTimeout(_Told, frozen=True, kw_only=True):
    """The effect of the end of a sandbox's time."""

    auto_resume: bool
    on_timeout: Literal["kill", "pause"]


class ListedSandbox(_Told, frozen=True, kw_only=True):
    """A row of a list of sandboxes."""

    template_id: str = field(name="templateID")
    sandbox_id: str = field(name="sandboxID")
    client_id: str = field(name="clientID")
    started_at: datetime
    end_at: datetime
    cpu_count: int
    memory_mb: int = field(name="memoryMB")
    disk_size_mb: int = field(name="diskSizeMB")
    state: State
    envd_version: str
    alias: str | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    volume_mounts: list[VolumeMount] | UnsetType = UNSET


class SandboxDetail(ListedSandbox, frozen=True, kw_only=True):
    """The full view of a sandbox for clients."""

    envd_access_token: str | UnsetType = UNSET
    allow_internet_access: bool | None | UnsetType = UNSET
    domain: str | None | UnsetType = UNSET
    network: Network | UnsetType = UNSET
    lifecycle: OnTimeout | UnsetType = UNSET
    pause_mode: Literal["full", "filesystem"] | UnsetType = UNSET


class Fault(_Told, frozen=True, kw_only=True):
    """An error: the body of an answer, or a part of an otherwise successful one."""

    code: int
    message: str
    error_code: str | UnsetType = field(default=UNSET, name="error_code")


class ForkResult(_Told, frozen=True, kw_only=True):
    """The result of one fork."""

    sandbox: Sandbox | UnsetType = UNSET
    error: Fault | UnsetType = UNSET


class Snapshot(_Told, frozen=True, kw_only=True):
    """A snapshot, by the name from which sandboxes can be made."""

    snapshot_id: str = field(name="snapshotID")
    names: list[str]


class Metric(_Told, frozen=True, kw_only=True):
    """A sandbox's usage at one moment. Sizes are in bytes."""

    timestamp: datetime
    timestamp_unix: int
    cpu_count: int
    cpu_used_pct: float
    mem_used: int
    mem_total: int
    mem_cache: int
    disk_used: int
    disk_total: int


class MetricsOfSandboxes(_Told, frozen=True, kw_only=True):
    """The newest metric of each sandbox that has one, by its id."""

    sandboxes: dict[str, Metric]


class LogLine(_Told, frozen=True, kw_only=True):
    """A line of a log, unparsed."""

    timestamp: datetime
    line: str


class LogEntry(_Told, frozen=True, kw_only=True):
    """A line of a log, parsed."""

    timestamp: datetime
    message: str
    level: Level
    fields: dict[str, str]


class Logs(_Told, frozen=True, kw_only=True):
    """Answer of ``GET /sandboxes/ID/logs``."""

    logs: list[LogLine]
    log_entries: list[LogEntry]


class LogsPage(_Told, frozen=True, kw_only=True):
    """Answer of ``GET /v2/sandboxes/ID/logs``."""

    logs: list[LogEntry]
