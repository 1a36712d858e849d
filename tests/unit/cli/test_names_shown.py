"""What users named is shown by its name."""

from __future__ import annotations

from typing import Any

from atoll.cli.commands.info import lines_of
from atoll.cli.commands.service import shown
from atoll.cli.commands.template import names_of
from atoll.cli.text import moment
from atoll.types import BuildInfo, Limits, SandboxInfo, ServiceInfo, ServiceSpec, VolumeMount

VOLUME, SNAPSHOT = "v" * 20, "s" * 20


def info(**more: Any) -> SandboxInfo:
    return SandboxInfo(
        sandbox_id="a" * 20,
        name="work",
        image="base",
        state="running",
        created_at=1.0,
        changed_at=1.0,
        env={},
        metadata={},
        network="none",
        limits=Limits(),
        user="user",
        cwd="/",
        **more,
    )


def test_a_sandbox_is_shown_by_its_name_and_with_the_names_of_what_it_has() -> None:
    has = {"volumes": {"/data": VolumeMount(VOLUME)}, "snapshot_id": SNAPSHOT}
    lines = lines_of(info(**has), {VOLUME: "data", SNAPSHOT: "ready"})
    assert lines[:2] == [("name", "work"), ("id", "a" * 20)]
    assert ("volume", "data at /data") in lines and ("snapshot", "ready") in lines


def test_what_has_no_name_is_shown_by_its_id() -> None:
    lines = lines_of(info(volumes={"/data": VolumeMount(VOLUME)}, snapshot_id=SNAPSHOT), {})
    assert ("volume", f"{VOLUME} at /data") in lines and ("snapshot", SNAPSHOT) in lines


def test_a_service_with_a_schedule_is_listed_with_it_and_its_next_run() -> None:
    nightly = ServiceSpec(name="nightly", command="./backup", schedule="0 3 * * *")
    web = ServiceSpec(name="web", command=["serve"], port=80)
    infos = [
        ServiceInfo(spec=nightly, state="waiting", next_at=1_800_000_000.0),
        ServiceInfo(spec=web, state="running", pid=7),
    ]
    head, first, second = shown(infos, 0.0).splitlines()
    assert "SCHEDULE (UTC)" in head and "NEXT RUN" in head
    assert "0 3 * * *" in first and moment(1_800_000_000.0) in first
    assert "SCHEDULE" not in shown(infos[1:], 0.0) and "serve" in second


def test_a_build_is_told_as_what_makes_a_sandbox_of_it() -> None:
    def build(*tags: str) -> BuildInfo:
        return BuildInfo(
            build_id="b", template_id="t", state="ready", created_at=1.0, changed_at=1.0, tags=list(tags)
        )

    assert names_of("web", build()) == ["web"]
    assert names_of("web", build("default", "v1")) == ["web", "web:v1"]
