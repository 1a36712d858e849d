from __future__ import annotations

import json

import pytest

from atoll.errors import AgentError
from atoll.guest import (
    definition_of,
    list_services,
    move_service,
    put_service,
    remove_service,
    service_info,
    service_output,
    statuses_from,
)
from atoll.types import HealthCheck, ServiceSpec

WEB = ServiceSpec(name="web", command="serve", port=8000)


def test_the_agent_is_told_a_line_or_arguments_and_a_check_of_the_port() -> None:
    told = json.loads(put_service(WEB).body or b"")
    assert told == {
        "name": "web",
        "restart": "always",
        "line": "serve",
        "health": {"port": 8000, "every_ms": 10_000, "timeout_ms": 5_000, "grace_ms": 30_000, "failures": 3},
    }
    check = HealthCheck(command="test -e well", every_s=0.5)
    listed = definition_of(ServiceSpec(name="a", command=["b", "c"], port=1, health=check))
    assert listed.argv == ("b", "c") and listed.line is None and listed.health is not None
    assert (listed.health.line, listed.health.port, listed.health.every_ms) == ("test -e well", 0, 500)
    assert definition_of(ServiceSpec(name="a", command="b")).health is None


def test_each_request_names_its_service() -> None:
    requests = [
        put_service(WEB),
        list_services(),
        move_service("web", "stop"),
        remove_service("web"),
        service_output("web", follow=False),
        service_output("web", follow=True),
    ]
    assert [f"{request.method} {request.target}" for request in requests] == [
        "PUT /atoll/services/web",
        "GET /atoll/services",
        "POST /atoll/services/web/stop",
        "DELETE /atoll/services/web",
        "GET /atoll/services/web/output",
        "GET /atoll/services/web/output?follow=true",
    ]


def status(**values: object) -> bytes:
    return json.dumps({"services": [{"name": "web", "state": "running", **values}]}).encode()


def test_what_a_guest_tells_is_joined_with_what_is_defined() -> None:
    told = statuses_from(status(pid=7, restarts=2, healthy=True, since_ms=1500, exit_code=3, reason="x"))
    info = service_info(WEB, told)
    assert (info.state, info.pid, info.restarts, info.healthy) == ("running", 7, 2, True)
    assert (info.since, info.exit_code, info.reason) == (1.5, 3, "x")
    assert service_info(WEB, None).state == "asleep"
    # A hostile guest may tell of other services only.
    assert service_info(WEB, {}).state == "waiting"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        status(state="flying"),
        status(pid=-1),
        status(restarts=1 << 60),
        status(exit_code=1000),
        status(reason="x" * 5000),
        status(name="x" * 64),
        json.dumps({"services": [{"name": "web", "state": "running"}] * 65}).encode(),
    ],
)
def test_what_a_guest_must_not_tell_is_refused(body: bytes) -> None:
    with pytest.raises(AgentError):
        statuses_from(body)
