"""Services of a guest: requests and status. Every value from a guest is checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from atoll.guest.answers import decoded
from atoll.guest.definitions import definition_of
from atoll.guest.requests import GuestRequest, json_request
from atoll.types import ServiceInfo, ServiceSpec
from atoll.types.internal import SERVICES_MOST

Verb = Literal["start", "stop", "restart"]
_Count = Annotated[int, Meta(ge=0, le=(1 << 53))]


class ServiceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a service is, as the guest tells it: all of it is bounded."""

    name: Annotated[str, Meta(max_length=63)]
    state: Literal["running", "waiting", "stopped", "ended"]
    pid: Annotated[int, Meta(ge=0, le=(1 << 31) - 1)] = 0
    restarts: _Count = 0
    runs: _Count = 0
    healthy: bool | None = None
    exit_code: Annotated[int, Meta(ge=0, le=255)] | None = None
    since_ms: _Count = 0
    reason: Annotated[str, Meta(max_length=4096)] = ""


def service_info(spec: ServiceSpec, told: Mapping[str, ServiceStatus] | None) -> ServiceInfo:
    """Join a definition and the guest's status; None means that the sandbox does not run."""
    status = None if told is None else told.get(spec.name)
    if status is None:
        return ServiceInfo(spec=spec, state="asleep" if told is None else "waiting")
    return ServiceInfo(
        spec=spec,
        state=status.state,
        pid=status.pid or None,
        restarts=status.restarts,
        healthy=status.healthy,
        exit_code=status.exit_code,
        since=status.since_ms / 1000,
        reason=status.reason or None,
    )


class _ServicesAnswer(msgspec.Struct):
    services: Annotated[list[ServiceStatus], Meta(max_length=SERVICES_MOST)]


def list_services() -> GuestRequest:
    """Ask for the status of the services."""
    return GuestRequest("GET", "/atoll/services")


def put_service(spec: ServiceSpec) -> GuestRequest:
    """Define and start a service."""
    return json_request("PUT", f"/atoll/services/{spec.name}", definition_of(spec))


def remove_service(name: str) -> GuestRequest:
    """Stop a service and forget it."""
    return GuestRequest("DELETE", f"/atoll/services/{name}")


def move_service(name: str, verb: Verb) -> GuestRequest:
    """Start, stop or restart a service; the answer comes when that is done."""
    return GuestRequest("POST", f"/atoll/services/{name}/{verb}")


def service_output(name: str, *, follow: bool) -> GuestRequest:
    """Read the output of all runs of a service; the answer is a stream of frames."""
    return GuestRequest("GET", f"/atoll/services/{name}/output{'?follow=true' if follow else ''}")


def statuses_from(body: bytes) -> dict[str, ServiceStatus]:
    """Read the status of the services, by name."""
    return {each.name: each for each in decoded(body, _ServicesAnswer).services}
