"""The ways to a sandbox: short forms, a bound on the wait, and one that is made only if it is not there."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.sdk.fakes import SANDBOX_ID, FakeSupervisor, Handler, info, sent

from atoll import Lifecycle, Sandbox
from atoll.errors import DeadlineError, InvalidSpecError, NameTakenError
from atoll.protocol import REQUEST_HEADER
from atoll.types import SandboxOptions

CREATE = ("POST", "/v1/sandboxes")
WAKE = ("POST", "/v1/sandboxes/work/wake")
PATIENCE_S = 60.0


@pytest.fixture
def specs(supervisor: FakeSupervisor) -> list[dict[str, Any]]:
    """What was asked for."""
    asked: list[dict[str, Any]] = []

    def create(handler: Handler) -> None:
        asked.append(sent(handler))
        handler.send_json(info(name="work"))

    supervisor.api.routes[CREATE] = create
    return asked


def not_found(handler: Handler) -> None:
    handler.send_json({"code": "sandbox_not_found", "message": "no sandbox"}, 404)


def test_the_image_may_come_first_and_ttl_s_is_a_lease_that_ends_with_a_kill(
    specs: list[dict[str, Any]],
) -> None:
    Sandbox.create("python:3.12", ttl_s=300, keep=True).close()
    assert specs[0]["image"] == "python:3.12"
    assert specs[0]["lifecycle"] == {"ttl_s": 300}
    assert Lifecycle(ttl_s=300).on_expiry == "kill"


def test_a_lease_is_given_in_one_way_only(specs: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidSpecError, match="put ttl_s into the lifecycle"):
        Sandbox.create(ttl_s=300, lifecycle=Lifecycle(on_expiry="suspend"))
    with pytest.raises(InvalidSpecError, match="ttl_s is -1"):
        Sandbox.create(ttl_s=-1)
    assert specs == []


def test_a_create_that_takes_too_long_is_undone(supervisor: FakeSupervisor) -> None:
    over, tokens = threading.Event(), []

    def build(handler: Handler) -> None:
        tokens.append(handler.headers[REQUEST_HEADER])
        supervisor.api.routes["DELETE", f"/v1/requests/{tokens[0]}"] = Handler.send_nothing
        handler.begin_stream()
        handler.chunk(b'{"progress": {"step": "pull"}}\n')
        over.wait(PATIENCE_S)

    supervisor.api.routes[CREATE] = build
    try:
        with pytest.raises(DeadlineError, match=r"not ready within 0.5 s \(give a longer within_s"):
            Sandbox.create("python:3.12", within_s=0.5, on_progress=lambda _: None)
    finally:
        over.set()
    undone = {path.rpartition("/")[2] for method, path in supervisor.api.requests if method == "DELETE"}
    assert set(tokens) <= undone
    assert undone


def test_the_bound_on_a_create_does_not_bound_what_follows(supervisor: FakeSupervisor) -> None:
    with Sandbox.create(within_s=600) as sandbox:
        assert sandbox._link._within_s is None


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), "5"])
def test_a_bound_that_is_none_is_refused(specs: list[dict[str, Any]], wrong: Any) -> None:
    with pytest.raises(InvalidSpecError, match="within_s"):
        Sandbox.create(within_s=wrong)
    assert specs == []


def test_starting_the_supervisor_counts_too(
    home_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ "$1" = -I ] && exec {sys.executable} "$@"\nexec sleep 5\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(DeadlineError, match="within 0.2 s"):
        Sandbox.create(within_s=0.2)


def test_a_sandbox_that_is_there_is_connected_and_left_alive(
    supervisor: FakeSupervisor, specs: list[dict[str, Any]]
) -> None:
    supervisor.api.routes[WAKE] = info(name="work")
    with Sandbox.connect_or_create("python:3.12", name="work") as sandbox:
        assert sandbox.name == "work"
    assert specs == []
    assert ("DELETE", f"/v1/sandboxes/{SANDBOX_ID}") not in supervisor.api.requests


def test_a_sandbox_that_is_not_there_is_made_and_left_alive(
    supervisor: FakeSupervisor, specs: list[dict[str, Any]]
) -> None:
    supervisor.api.routes[WAKE] = not_found
    with Sandbox.connect_or_create("python:3.12", name="work", ttl_s=60, env={"A": "b"}):
        pass
    assert [(spec["image"], spec["name"], spec["env"]) for spec in specs] == [
        ("python:3.12", "work", {"A": "b"})
    ]
    assert ("DELETE", f"/v1/sandboxes/{SANDBOX_ID}") not in supervisor.api.requests


def test_a_sandbox_that_another_client_is_making_is_waited_for(supervisor: FakeSupervisor) -> None:
    wakes = []

    def wake(handler: Handler) -> None:
        wakes.append(handler)
        if len(wakes) < 3:
            not_found(handler)
        else:
            handler.send_json(info(name="work"))

    supervisor.api.routes[WAKE] = wake
    supervisor.api.routes[CREATE] = lambda handler: handler.send_json(
        {"code": "name_taken", "message": "work is taken"}, 409
    )
    with Sandbox.connect_or_create(name="work") as sandbox:
        assert sandbox.name == "work"
    assert len(wakes) == 3


def test_a_name_that_stays_taken_is_an_error_in_the_end(supervisor: FakeSupervisor) -> None:
    supervisor.api.routes[WAKE] = not_found
    supervisor.api.routes[CREATE] = lambda handler: handler.send_json(
        {"code": "name_taken", "message": "work is taken"}, 409
    )
    with pytest.raises(NameTakenError):
        Sandbox.connect_or_create(name="work", within_s=0.2)


def test_connect_or_create_takes_every_argument_of_create() -> None:
    import inspect

    own = {"image", "name", "ttl_s", "keep"}
    assert set(inspect.signature(Sandbox.create).parameters) - own == set(SandboxOptions.__annotations__)
