"""Builds of E2B's clients, before anything is built."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from atoll.errors import InvalidSpecError, UnsupportedError
from atoll.server.builds.logs import BuildLog, BuildLogs
from atoll.server.builds.uploads import Uploads
from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.build_steps import spec_of
from atoll.server.e2b.image_names import mapped, table_of
from atoll.server.e2b.template_wire import AskedLogin, AskedStep, NewBuild
from atoll.server.tokens import Tokens
from atoll.types import BuildLine, CopyStep, EnvStep, Limits, RegistryLogin, RunStep

DIGEST = "0123456789abcdef" * 4


def test_images_stand_for_others() -> None:
    table = table_of(
        ("docker.io/=mirror.example/hub/", "ghost.example/a:1=b:2", "python:=mirror.example/py:")
    )
    names = {
        "ubuntu:22.04": "base",
        "docker.io/library/ubuntu:22.04": "base",
        "e2bdev/base:latest": "base",
        "node:20": "mirror.example/hub/node:20",
        "python:3.12": "mirror.example/py:3.12",
        "ghost.example/a:1": "b:2",
        "ghost.example/b:1": None,
    }
    assert {name: mapped(name, table) for name in names} == names
    assert mapped("node:20", {}) is None
    assert mapped("corp.example/a:1", {"corp.example/": "corp.example/"}) == "corp.example/a:1"
    with pytest.raises(InvalidSpecError, match="is not an image mapping"):
        table_of(("nonsense",))


def test_what_a_client_names_is_asked_of_public_registries_only() -> None:
    def public(name: str) -> bool:
        return spec_of(NewBuild(from_image=name), Limits(), {"corp.example/": "10.0.0.1/"}).public_image

    assert public("10.0.0.1/a:1") and public("python:3.12")
    assert not public("corp.example/a:1")


def test_steps_of_clients_become_ours() -> None:
    steps = [
        AskedStep(type="RUN", args=["make", "root"], force=True),
        AskedStep(type="ENV", args=["A", "1", "B", "2"]),
        AskedStep(type="COPY", args=["src", "/app", "", "0644"], files_hash=DIGEST),
    ]
    spec = spec_of(NewBuild(steps=steps, start_cmd="serve", ready_cmd=""), Limits(vcpus=2), {})
    assert (spec.image, spec.prepare, spec.start_command, spec.ready_command) == ("base", [], "serve", None)
    assert spec.steps == [
        RunStep(command="make", user="root", force=True),
        EnvStep(env={"A": "1", "B": "2"}),
        CopyStep(sources=["src"], target="/app", mode=0o644, archive=DIGEST),
    ]
    assert len(spec_of(NewBuild(from_image="node:20"), Limits(), {}).prepare) == 3
    assert spec_of(NewBuild(from_template="mine"), Limits(), {}).image is None


@pytest.mark.parametrize(
    "step",
    [
        AskedStep(type="RUN"),
        AskedStep(type="ENV", args=["A"]),
        AskedStep(type="COPY", args=["a", "b"]),
        AskedStep(type="COPY", args=["a", "b", "", "9"], files_hash=DIGEST),
        AskedStep(type="ONBUILD", args=["x"]),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(step: AskedStep) -> None:
    with pytest.raises(Refusal) as refused:
        spec_of(NewBuild(steps=[step]), Limits(), {})
    assert refused.value.status == 400


def test_a_build_has_one_origin() -> None:
    with pytest.raises(Refusal):
        spec_of(NewBuild(from_image="a", from_template="b"), Limits(), {})
    with pytest.raises(UnsupportedError):
        spec_of(NewBuild(from_image="a", from_image_registry=AskedLogin(type="aws")), Limits(), {})


def test_what_a_registry_is_told_depends_on_its_type() -> None:
    logins = [
        AskedLogin(type="registry", username="me", password="secret"),
        AskedLogin(type="gcp", service_account_json="{}"),
    ]
    specs = [
        spec_of(NewBuild(from_image="a", from_image_registry=login), Limits(), {"a": "b"}) for login in logins
    ]
    assert [spec.login for spec in specs] == [
        RegistryLogin(username="me", password="secret"),
        RegistryLogin(username="_json_key", password="{}"),
    ]
    assert "secret" not in repr(specs) + repr(logins)
    for unfit in (AskedLogin(type="registry"), AskedLogin(type="gcp"), AskedLogin(type="carrier")):
        with pytest.raises(Refusal):
            spec_of(NewBuild(from_image="a", from_image_registry=unfit), Limits(), {})


def test_only_what_whoever_runs_the_server_maps_is_pulled_with_the_login_of_the_host() -> None:
    assert spec_of(NewBuild(from_image="a:1"), Limits(), {"a:1": "b"}).trusted_image
    assert not spec_of(NewBuild(from_image="a:1"), Limits(), {}).trusted_image
    for name in ("@team/a:1", "@/a:1", f"sha256-{DIGEST}"):
        with pytest.raises(Refusal):
            spec_of(NewBuild(from_image=name), Limits(), {})


def test_a_log_is_bounded_in_lines_and_text(tmp_path: Path) -> None:
    line = BuildLine(at=0, level="info", message="x" * 4096)
    long, wide = BuildLog(tmp_path / "long"), BuildLog(tmp_path / "wide")
    for _ in range(20_000):
        long.add(BuildLine(at=0, level="info", message="x"))
        wide.add(line)
    assert len(long.lines) == 10_001
    assert sum(len(each.message) for each in wide.lines) < 3 << 20
    assert long.lines[-1].level == wide.lines[-1].level == "warn"


def test_a_log_outlives_its_server_and_a_torn_line_and_the_oldest_of_too_many_goes(tmp_path: Path) -> None:
    logs = BuildLogs(tmp_path / "builds", most_bytes=300)
    first = BuildLine(at=0, level="info", message="\u00fc\nfirst", step="1")
    logs.begin("old").add(first)
    os.utime(tmp_path / "builds" / "old.jsonl", (1, 1))
    log = logs.begin("new")
    for number in range(3):
        log.add(BuildLine(at=number, level="warn", message="x"))
    with (tmp_path / "builds" / "new.jsonl").open("ab") as file:
        file.write(b'{"at":3,"level":"in')
    again = BuildLogs(tmp_path / "builds", most_bytes=200)
    assert again.read("old") == [first]
    assert again.read("new") == log.lines
    again.begin("newest")
    assert (again.read("old"), again.read("newest"), len(again.read("new"))) == ([], [], 3)
    again.forget({"new", "never"})
    assert again.read("new") == []


class Clock:
    now_s = 1_000_000_000.0

    def __call__(self) -> float:
        return self.now_s


async def sent(data: bytes) -> AsyncIterator[bytes]:
    yield data


def status_of(uploads: Uploads, digest: str, asked: dict[str, str], data: bytes) -> int:
    try:
        asyncio.run(uploads.take(digest, asked, sent(data)))
    except Refusal as refusal:
        return refusal.status
    return 200


def kept(uploads: Uploads, team: str, digest: str, data: bytes) -> bool:
    asked = dict(parse_qsl(uploads.query(team, digest)))
    return status_of(uploads, digest, asked, data) == 200 and uploads.has(team, digest)


def test_an_upload_needs_its_own_address(tmp_path: Path) -> None:
    clock = Clock()
    uploads = Uploads(tmp_path / "uploads", Tokens(bytes(32)), clock, (1000, 2500))
    asked = dict(parse_qsl(uploads.query("blue", DIGEST)))
    assert not uploads.has("blue", DIGEST)
    assert status_of(uploads, DIGEST, {**asked, "team": "red"}, b"x") == 403
    assert status_of(uploads, "f" * 64, asked, b"x") == 403
    assert status_of(uploads, DIGEST, {**asked, "until": "9" * 12}, b"x") == 403
    assert status_of(uploads, DIGEST, {}, b"x") == 403
    assert status_of(uploads, DIGEST, asked, b"x" * 1001) == 413
    assert status_of(uploads, DIGEST, asked, b"x" * 900) == 200
    assert uploads.has("blue", DIGEST)
    assert not uploads.has("red", DIGEST)
    clock.now_s += 4000
    assert status_of(uploads, DIGEST, asked, b"x") == 403
    for name in ("../" * 8 + "etc/passwd", "a", DIGEST.upper()):
        with pytest.raises(Refusal):
            uploads.path("blue", name)


def test_a_team_that_uploads_much_pushes_out_its_own_files_alone(tmp_path: Path) -> None:
    clock = Clock()
    uploads = Uploads(tmp_path / "uploads", Tokens(bytes(32)), clock, (1000, 2500))
    assert kept(uploads, "red", DIGEST, b"y" * 500)
    for digit in "123456":
        clock.now_s += 60
        assert kept(uploads, "blue", digit * 64, b"y" * 900)
    assert uploads.has("red", DIGEST)
    assert [digit for digit in "123456" if uploads.has("blue", digit * 64)] == ["5", "6"]


def test_uploads_of_one_team_that_do_not_end_leave_room_for_another_s(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "uploads", Tokens(bytes(32)), Clock(), (1000, 1500))

    async def take(team: str, digest: str, pieces: AsyncIterator[bytes]) -> int:
        try:
            await uploads.take(digest, dict(parse_qsl(uploads.query(team, digest))), pieces)
        except Refusal as refusal:
            return refusal.status
        return 200

    async def work() -> None:
        written = asyncio.Barrier(17)

        async def slow() -> AsyncIterator[bytes]:
            yield b"y" * 80
            await written.wait()
            await written.wait()

        going = [asyncio.ensure_future(take("blue", f"{one:064x}", slow())) for one in range(16)]
        await asyncio.sleep(0)
        assert await take("blue", DIGEST, sent(b"z")) == 503
        assert await take("red", DIGEST, sent(b"z")) == 200
        await written.wait()
        assert await take("red", "f" * 64, sent(b"z" * 900)) == 503, "all together are too much"
        await written.wait()
        assert set(await asyncio.gather(*going)) == {200}

    asyncio.run(work())


def test_uploads_go_after_a_day_and_when_there_is_too_much(tmp_path: Path) -> None:
    clock = Clock()
    uploads = Uploads(tmp_path / "uploads", Tokens(bytes(32)), clock, (1000, 2500))
    for digit in "123":
        clock.now_s += 60
        assert kept(uploads, "blue", digit * 64, b"y" * 900)
    assert not uploads.has("blue", "1" * 64), "the oldest goes when there is too much"
    assert len(list((tmp_path / "uploads").iterdir())) == 2
    clock.now_s += 90_000
    uploads.sweep()
    assert list((tmp_path / "uploads").iterdir()) == []
