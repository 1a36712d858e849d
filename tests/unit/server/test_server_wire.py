"""What E2B's clients ask for in our words, and our sandboxes in theirs."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from atoll.errors import InvalidSpecError
from atoll.server.e2b import leases
from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.attributes import Attributes, check_attributes, read
from atoll.server.e2b.host_capacity import HostCapacity
from atoll.server.e2b.views import Views
from atoll.server.e2b.wire import NewSandbox
from atoll.server.tokens import Tokens
from tests.unit.server.examples import sandbox

VIEWS = Views(
    Tokens(b"s" * 32), HostCapacity(vcpus=4, memory_mib=2048, disk_mib=9000), domain="sandboxes.example.com"
)


def asked(**body: object) -> NewSandbox:
    return msgspec.json.decode(json.dumps({"templateID": "base", **body}), type=NewSandbox)


def test_a_request_is_read_as_the_clients_write_it_and_what_is_unknown_is_passed_over() -> None:
    wanted = asked(
        timeout=5,
        autoPause=True,
        autoResume={"enabled": True, "policy": "any"},
        allow_internet_access=False,
        envVars={"A": "b"},
        volumeMounts=[{"name": "v", "path": "/data"}],
        mcp={"exa": {"apiKey": "k"}},
        whatever=[[[{}]]],
    )
    assert (wanted.timeout, wanted.auto_pause, wanted.allow_internet_access) == (5, True, False)
    assert wanted.auto_resume is not None
    assert wanted.auto_resume.enabled
    assert wanted.env_vars == {"A": "b"}


@pytest.mark.parametrize(
    "body",
    [
        "{}",
        '{"templateID": 3}',
        '{"templateID": "x", "timeout": -1}',
        '{"templateID": "x", "timeout": 1e400}',
        '{"templateID": "x", "timeout": NaN}',
        '{"templateID": "x", "timeout": 99999999999999999999}',
        '{"templateID": "x", "metadata": {"a": 1}}',
        '{"templateID": "x", "metadata": {"a": "' + "b" * 70_000 + '"}}',
        '{"templateID": "x", "volumeMounts": [{"name": "v"}]}',
        '{"templateID": "' + "x" * 600 + '"}',
    ],
)
def test_a_body_with_a_wrong_or_huge_value_is_not_read(body: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(body, type=NewSandbox)


def test_timeouts_become_leases() -> None:
    kill = leases.lease_of(asked(), 60)
    assert (kill.ttl_s, kill.on_expiry, kill.auto_resume, kill.wake_ttl_s) == (
        60,
        "kill",
        False,
        300,
    )
    assert leases.lease_of(asked(), 60, 120).wake_ttl_s == 120
    pause = leases.lease_of(asked(autoPause=True, autoResume={"enabled": True}), 900)
    assert (pause.on_expiry, pause.auto_resume, pause.wake_ttl_s) == ("suspend", True, 900)
    stop = leases.lease_of(asked(autoPause=True, autoPauseMemory=False), 60)
    assert stop.on_expiry == "stop"
    assert leases.told(stop).on_timeout == "pause"


@pytest.mark.parametrize(
    "body",
    [
        {"autoPauseMemory": False},
        {"autoPause": True, "autoPauseMemory": False, "autoResume": {"enabled": True}},
    ],
)
def test_a_lease_that_contradicts_itself_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(Refusal) as refused:
        leases.lease_of(asked(**body), 60)
    assert refused.value.status == 400


def test_a_timeout_above_the_teams_is_refused_in_hours() -> None:
    assert leases.bounded(3600, 3600.0) == 3600
    with pytest.raises(Refusal) as refused:
        leases.bounded(3601, 3600.0)
    assert refused.value.message == "Timeout cannot be greater than 1 hours"


def test_what_is_remembered_of_a_sandbox_comes_back() -> None:
    usual = Attributes(template="base")
    assert usual.kept() == {"e2b_template": "base"}
    assert read(sandbox(1, attributes=usual.kept(), image="other", ports=usual.ports)) == usual
    unusual = Attributes(
        template="t",
        alias="web",
        secure=False,
        public_traffic=False,
        mask_host="h",
        https_ports=(443, 8443),
        internet=False,
        network='{"denyOut":["8.8.8.8"]}',
        idempotency="k f",
    )
    assert read(sandbox(1, attributes=unusual.kept(), image="other", ports=unusual.ports)) == unusual
    assert read(sandbox(1, image="python:3.12")) == Attributes(template="python:3.12")


def test_a_list_of_ports_that_is_none_is_refused_and_its_ports_are_read() -> None:
    check_attributes({"e2b_https_ports": " 443 8443", "other": "x"})
    for bad in ("x", "0", "65536", "443,8443", "-1", "+443", "1_0", "٣", "9" * 5000):
        with pytest.raises(InvalidSpecError, match="e2b_https_ports"):
            check_attributes({"e2b_https_ports": bad})
        assert read(sandbox(1, attributes={"e2b_https_ports": f"443 {bad}"})).https_ports == (443,)


def test_a_client_gets_the_tokens_that_it_needs_and_no_others() -> None:
    told = json.loads(msgspec.json.encode(VIEWS.created("a1", Attributes(template="base"))))
    assert told["envdAccessToken"] == VIEWS.tokens.access("a1")
    assert told["trafficAccessToken"] is None
    assert told["domain"] == "sandboxes.example.com"
    assert "alias" not in told
    closed = VIEWS.created("a1", Attributes(template="base", secure=False, public_traffic=False))
    told = json.loads(msgspec.json.encode(closed))
    assert "envdAccessToken" not in told
    assert told["trafficAccessToken"] == VIEWS.tokens.traffic("a1")


def test_a_running_sandbox_is_told_with_the_hosts_means_where_it_has_no_limits() -> None:
    info = sandbox(
        1, ends_at=1301.0, limits={"vcpus": 1.5}, volumes={"/data": {"volume": "v"}}, network="none"
    )
    told = json.loads(msgspec.json.encode(VIEWS.detail(info)))
    assert (told["cpuCount"], told["memoryMB"], told["diskSizeMB"]) == (2, 2048, 9000)
    assert (told["state"], told["startedAt"], told["endAt"]) == (
        "running",
        "1970-01-01T00:16:41Z",
        "1970-01-01T00:21:41Z",
    )
    assert told["volumeMounts"] == [{"name": "v", "path": "/data"}]
    assert told["allowInternetAccess"] is False
    assert told["network"] == {"allowPublicTraffic": True, "denyOut": ["0.0.0.0/0"]}
    assert told["lifecycle"] == {"autoResume": True, "onTimeout": "kill"}
    assert "pauseMode" not in told


def test_a_sleeping_sandbox_says_what_was_kept_of_it() -> None:
    def mode(**more: Any) -> str:
        return str(
            json.loads(msgspec.json.encode(VIEWS.detail(sandbox(1, state="suspended", **more))))["pauseMode"]
        )

    assert (mode(), mode(has_memory=False)) == ("full", "filesystem")


def test_a_list_tells_no_token() -> None:
    assert b"Token" not in msgspec.json.encode(VIEWS.listed(sandbox(1)))
