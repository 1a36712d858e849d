"""Sandboxes in the form of E2B's API."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import UNSET

from atoll.server.e2b import leases
from atoll.server.e2b.attributes import Attributes, read
from atoll.server.e2b.destinations import Range
from atoll.server.e2b.host_capacity import HostCapacity
from atoll.server.e2b.network_views import told_network
from atoll.server.e2b.wire import (
    ListedSandbox,
    Metric,
    Sandbox,
    SandboxDetail,
    State,
    VolumeMount,
)
from atoll.server.tokens import Tokens
from atoll.types import SandboxInfo, StatsSample

# Our agent behaves like this version of envd. Clients choose features by it.
ENVD_VERSION = "0.6.13"
CLIENT_ID = "atoll"
# E2B's sandboxes always end, so a sandbox without a lease reports an end long after its start.
_ENDLESS = timedelta(days=36_500)
_EPOCH = datetime.fromtimestamp(0, UTC)
_FIRST_S = (datetime.min.replace(tzinfo=UTC) - _EPOCH).total_seconds()
# the last whole second, because a float cannot tell the last microsecond from the next one
_LAST_S = (datetime.max.replace(microsecond=0, tzinfo=UTC) - _EPOCH).total_seconds()


@dataclass(frozen=True)
class Views:
    """Converts sandboxes to the bodies that clients get.

    Args:
        tokens: Makes the tokens that clients need for one sandbox.
        capacity: The limits of a sandbox without its own.
        domain: The domain of the sandboxes' host names, with any unusual port, or None.
        opened: Ranges that are not public, which clients may allow.
    """

    tokens: Tokens
    capacity: HostCapacity
    domain: str | None
    opened: Sequence[Range] = ()

    def created(self, sandbox_id: str, attributes: Attributes) -> Sandbox:
        """Return the facts that a client needs to talk to a sandbox."""
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
        """Return a row of a list."""
        return ListedSandbox(**self._row(info, read(info)))

    def detail(self, info: SandboxInfo) -> SandboxDetail:
        """Return the full view of a sandbox for clients."""
        attributes = read(info)
        paused = state_of(info) == "paused"
        return SandboxDetail(
            **self._row(info, attributes),
            envd_access_token=self.tokens.access(info.sandbox_id) if attributes.secure else UNSET,
            allow_internet_access=_internet(info, attributes),
            domain=self.domain,
            network=told_network(info, attributes, self.opened),
            lifecycle=leases.told(info.lifecycle),
            pause_mode=("full" if info.has_memory else "filesystem") if paused else UNSET,
        )

    def metric(self, sample: StatsSample) -> Metric:
        """Return a sandbox's usage at one moment."""
        return Metric(
            timestamp=moment(sample.at),
            timestamp_unix=int(sample.at),
            cpu_count=math.ceil(sample.vcpus) if sample.vcpus else self.capacity.vcpus,
            cpu_used_pct=round(sample.cpu_percent or 0.0, 2),
            mem_used=sample.memory_bytes or 0,
            mem_total=sample.memory_limit_bytes or self.capacity.memory_mib << 20,
            mem_cache=0,
            disk_used=sample.disk_bytes or 0,
            disk_total=sample.disk_limit_bytes or self.capacity.disk_mib << 20,
        )

    def _row(self, info: SandboxInfo, attributes: Attributes) -> dict[str, Any]:
        started = moment(info.started_at)
        return {
            "template_id": attributes.template,
            "sandbox_id": info.sandbox_id,
            "client_id": CLIENT_ID,
            "started_at": started,
            "end_at": _end(info, started),
            "cpu_count": math.ceil(info.limits.vcpus) if info.limits.vcpus else self.capacity.vcpus,
            "memory_mb": info.limits_in_force.memory_mib or self.capacity.memory_mib,
            "disk_size_mb": info.limits_in_force.disk_mib or self.capacity.disk_mib,
            "state": state_of(info),
            "envd_version": ENVD_VERSION,
            "alias": attributes.alias or UNSET,
            "metadata": info.metadata,
            "volume_mounts": [
                VolumeMount(name=mount.volume, path=path) for path, mount in info.volumes.items()
            ],
        }


def state_of(info: SandboxInfo) -> State:
    """Return E2B's state of a sandbox. A sandbox that does not run is paused."""
    return "running" if info.state in ("running", "creating") else "paused"


def started_us(info: SandboxInfo) -> int:
    """Return when the sandbox last began to run, in Unix microseconds."""
    return round((info.started_at) * 1e6)


def moment(at_s: float) -> datetime:
    """Convert Unix seconds to a date. A guest may set file times that no calendar has."""
    return _EPOCH + timedelta(microseconds=round(min(max(at_s, _FIRST_S), _LAST_S) * 1e6))


def _end(info: SandboxInfo, started: datetime) -> datetime:
    if state_of(info) == "paused":
        return moment(info.stopped_at or info.changed_at)
    return moment(info.ends_at) if info.ends_at is not None else started + _ENDLESS


def _internet(info: SandboxInfo, attributes: Attributes) -> bool | None:
    if info.network == "none":
        return False
    # the client's wish no longer holds if the operator has changed the network since
    return True if info.network == "internet" and attributes.internet is not None else attributes.internet
