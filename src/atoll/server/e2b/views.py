"""Our sandboxes as E2B's clients see them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import UNSET

from atoll.server.e2b import leases
from atoll.server.e2b.attributes import Attributes, read
from atoll.server.e2b.egress import EVERYTHING
from atoll.server.e2b.machine import Machine
from atoll.server.e2b.wire import (
    ListedSandbox,
    Metric,
    Network,
    Sandbox,
    SandboxDetail,
    State,
    VolumeMount,
)
from atoll.server.tokens import Tokens
from atoll.types import SandboxInfo, StatsSample

# The envd whose behaviour our agent has: clients switch features on by it.
ENVD_VERSION = "0.6.13"
CLIENT_ID = "atoll"
# E2B's sandboxes always end; one without a lease says that it does so long after its start.
_ENDLESS = timedelta(days=36_500)
_EPOCH = datetime.fromtimestamp(0, UTC)
_FIRST_S = (datetime.min.replace(tzinfo=UTC) - _EPOCH).total_seconds()
# the last whole second, since a float cannot tell the last microsecond from what follows
_LAST_S = (datetime.max.replace(microsecond=0, tzinfo=UTC) - _EPOCH).total_seconds()


@dataclass(frozen=True)
class Views:
    """Makes what clients are told.

    Args:
        tokens: Makes the tokens that clients need for one sandbox.
        machine: What a sandbox without limits may use.
        domain: Under which sandboxes have host names, with the port where it is not the usual one; None without.
    """

    tokens: Tokens
    machine: Machine
    domain: str | None

    def created(self, sandbox_id: str, attributes: Attributes) -> Sandbox:
        """What a client needs to talk to a sandbox."""
        return Sandbox(
            template_id=attributes.template,
            sandbox_id=sandbox_id,
            client_id=CLIENT_ID,
            envd_version=ENVD_VERSION,
            alias=attributes.alias or UNSET,
            envd_access_token=self.tokens.access(sandbox_id) if attributes.secure else UNSET,
            traffic_access_token=None if attributes.public_traffic else self.tokens.traffic(sandbox_id),
            domain=self.domain,
        )

    def listed(self, info: SandboxInfo) -> ListedSandbox:
        """A row of a list."""
        return ListedSandbox(**self._row(info, read(info.attributes, info.image)))

    def detail(self, info: SandboxInfo) -> SandboxDetail:
        """All that a client is told of it."""
        attributes = read(info.attributes, info.image)
        paused = state_of(info) == "paused"
        return SandboxDetail(
            **self._row(info, attributes),
            envd_access_token=self.tokens.access(info.sandbox_id) if attributes.secure else UNSET,
            allow_internet_access=_internet(info, attributes),
            domain=self.domain,
            network=_network(info, attributes),
            lifecycle=leases.told(info.lifecycle),
            pause_mode=("full" if info.has_memory else "filesystem") if paused else UNSET,
        )

    def metric(self, sample: StatsSample) -> Metric:
        """What a sandbox used at one moment."""
        return Metric(
            timestamp=moment(sample.at),
            timestamp_unix=int(sample.at),
            cpu_count=math.ceil(sample.vcpus) if sample.vcpus else self.machine.vcpus,
            cpu_used_pct=round(sample.cpu_percent or 0.0, 2),
            mem_used=sample.memory_bytes or 0,
            mem_total=sample.memory_limit_bytes or self.machine.memory_mib << 20,
            mem_cache=0,
            disk_used=sample.disk_bytes or 0,
            disk_total=sample.disk_limit_bytes or self.machine.disk_mib << 20,
        )

    def _row(self, info: SandboxInfo, attributes: Attributes) -> dict[str, Any]:
        started = moment(info.started_at or info.created_at)
        return {
            "template_id": attributes.template,
            "sandbox_id": info.sandbox_id,
            "client_id": CLIENT_ID,
            "started_at": started,
            "end_at": _end(info, started),
            "cpu_count": math.ceil(info.limits.vcpus) if info.limits.vcpus else self.machine.vcpus,
            "memory_mb": info.limits_in_force.memory_mib or self.machine.memory_mib,
            "disk_size_mb": info.limits_in_force.disk_mib or self.machine.disk_mib,
            "state": state_of(info),
            "envd_version": ENVD_VERSION,
            "alias": attributes.alias or UNSET,
            "metadata": info.metadata,
            "volume_mounts": [VolumeMount(name=name, path=path) for path, name in info.volumes.items()],
        }


def state_of(info: SandboxInfo) -> State:
    """E2B knows two states: what does not run sleeps."""
    return "running" if info.state in ("running", "creating") else "paused"


def started_us(info: SandboxInfo) -> int:
    """When it began to run last, in Unix microseconds."""
    return round((info.started_at or info.created_at) * 1e6)


def moment(at_s: float) -> datetime:
    """Unix seconds as a moment of the world; a guest may give its files times that no calendar has."""
    return _EPOCH + timedelta(microseconds=round(min(max(at_s, _FIRST_S), _LAST_S) * 1e6))


def _end(info: SandboxInfo, started: datetime) -> datetime:
    if state_of(info) == "paused":
        # before it was written down, the last change had to do
        return moment(info.stopped_at or info.changed_at)
    return moment(info.ends_at) if info.ends_at is not None else started + _ENDLESS


def _internet(info: SandboxInfo, attributes: Attributes) -> bool | None:
    if info.network == "none":
        return False
    return None if attributes.internet is None else True


def _network(info: SandboxInfo, attributes: Attributes) -> Network:
    return Network(
        allow_public_traffic=attributes.public_traffic,
        mask_request_host=attributes.mask_host,
        deny_out=[EVERYTHING] if info.network == "none" else None,
    )
