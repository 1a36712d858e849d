"""The ways to a sandbox: short forms, a bound on the wait, and one that is made only if it is not there."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.sdk.fakes import SANDBOX_ID, FakeSupervisor, Handler, info, sent

from atoll import Boot, Hosting, Lifecycle, Sandbox, ServiceSpec, Snapshot, SnapshotInfo, Template, Wait
from atoll.errors import DeadlineError, InvalidSpecError, NameTakenError
from atoll.protocol import REQUEST_HEADER
from atoll.types import SandboxOptions, Source, TemplateInfo

CREATE = ("POST", "/v1/sandboxes")
WAKE = ("POST", "/v1/sandboxes/work/wake")
PATIENCE_S = 60.0
SNAPSHOT = SnapshotInfo(
    snapshot_id="s" * 20,
    name="ready",
    comment="",
    image="base",
    sandbox_id=SANDBOX_ID,
    parent_id=None,
    created_at=1.0,
    memory_bytes=1,
    disk_bytes=1,
    stopped_ms=1.0,
)
TEMPLATE = TemplateInfo(
    template_id="t" * 20,
    name="web",
    team=None,
    public=False,
    created_at=1.0,
    changed_at=1.0,
    tags={},
    builds=[],
)


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


def test_a_text_is_an_image_and_a_lease_ends_with_a_kill(specs: list[dict[str, Any]]) -> None:
    Sandbox.create("python:3.12", lifecycle=Lifecycle(ttl_s=300), keep=True).close()
    assert specs[0]["image"] == "python:3.12"
    assert specs[0]["lifecycle"] == {"ttl_s": 300}
    assert Lifecycle(ttl_s=300).on_expiry == "kill"


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        (None, {}),
        ("python:3.12", {"image": "python:3.12"}),
        (Snapshot("ready"), {"from_snapshot": "ready"}),
        (SNAPSHOT, {"from_snapshot": SNAPSHOT.snapshot_id}),
        (Template("web:v2"), {"template": "web:v2"}),
        (TEMPLATE, {"template": TEMPLATE.template_id}),
    ],
    ids=["none", "image", "snapshot", "its info", "template", "its info too"],
)
def test_a_source_is_an_image_a_snapshot_or_a_template(
    specs: list[dict[str, Any]], source: Source | None, asked: dict[str, str]
) -> None:
    Sandbox.create(source, keep=True).close()
    told = ("image", "from_snapshot", "template")
    assert {name: specs[0][name] for name in told if specs[0].get(name) is not None} == asked


def test_values_that_belong_together_reach_the_supervisor_as_before(specs: list[dict[str, Any]]) -> None:
    boot = Boot(
        start=True,
        trust_host_ca=False,
        services=[ServiceSpec(name="web", command="true")],
        on_crash="stop",
        best_effort=True,
    )
    hosting = Hosting(team="reef", attributes={"own_a": "b"}, ports="closed", idempotency_key="job-42")
    Sandbox.create(boot=boot, hosting=hosting, keep=True).close()
    names = (*Boot.__struct_fields__, *Hosting.__struct_fields__)
    told = {name: specs[0][name] for name in names if name != "services"}
    values = {**msgspec.structs.asdict(boot), **msgspec.structs.asdict(hosting)}
    assert told == {name: value for name, value in values.items() if name != "services"}
    assert [service["name"] for service in specs[0]["services"]] == ["web"]


def test_a_lease_is_given_in_one_way_only(supervisor: FakeSupervisor, specs: list[dict[str, Any]]) -> None:
    supervisor.api.routes[WAKE] = not_found
    with pytest.raises(InvalidSpecError, match="put ttl_s into the lifecycle"):
        Sandbox.connect_or_create(name="work", ttl_s=300, lifecycle=Lifecycle(on_expiry="suspend"))
    with pytest.raises(InvalidSpecError, match="ttl_s is -1"):
        Sandbox.create(lifecycle=Lifecycle(ttl_s=-1))
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
            Sandbox.create("python:3.12", wait=Wait(within_s=0.5, on_progress=lambda _: None))
    finally:
        over.set()
    undone = {path.rpartition("/")[2] for method, path in supervisor.api.requests if method == "DELETE"}
    assert set(tokens) <= undone
    assert undone


def test_the_bound_on_a_create_does_not_bound_what_follows(supervisor: FakeSupervisor) -> None:
    with Sandbox.create(wait=Wait(within_s=600)) as sandbox:
        assert sandbox._api._within_s is None


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), "5"])
def test_a_bound_that_is_none_is_refused(specs: list[dict[str, Any]], wrong: Any) -> None:
    with pytest.raises(InvalidSpecError, match="within_s"):
        Sandbox.create(wait=Wait(within_s=wrong))
    assert specs == []


def test_starting_the_supervisor_counts_too(
    home_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ "$1" = -I ] && exec {sys.executable} "$@"\nexec sleep 5\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(DeadlineError, match="within 0.2 s"):
        Sandbox.create(wait=Wait(within_s=0.2))


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
        Sandbox.connect_or_create(name="work", wait=Wait(within_s=0.2))


def test_connect_or_create_takes_every_argument_of_create() -> None:
    import inspect

    own = {"source", "name", "keep"}
    assert set(inspect.signature(Sandbox.create).parameters) - own == set(SandboxOptions.__annotations__)
