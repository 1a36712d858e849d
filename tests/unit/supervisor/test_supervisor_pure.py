"""The supervisor's logic that needs no host."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest

from atoll.errors import InvalidSpecError, NameTakenError, SandboxNotFoundError, StateError, SupervisorError
from atoll.supervisor.lifecycle.rollback import next_disk
from atoll.supervisor.lifecycle.warm_pool import missing
from atoll.supervisor.logs import read_page
from atoll.supervisor.machines.identity import branched_init, first_init, woken_init
from atoll.supervisor.own_exit import Activity, Keeper, may_end_holder, may_leave
from atoll.supervisor.settings import Settings, read_settings, restores_for
from atoll.supervisor.state.database import TABLES, VERSION, Database
from atoll.supervisor.state.ids import check_env, check_name, new_id
from atoll.supervisor.state.rows import KEYS, SandboxRow, Versions
from atoll.supervisor.state.transitions import check_action
from atoll.supervisor.storage.binaries import Programs
from atoll.supervisor.storage.images import ImageFacts
from atoll.supervisor.storage.trust import certificates, extra_certificates
from atoll.types import Limits


def _row(sandbox_id: str, name: str | None = None) -> SandboxRow:
    return SandboxRow(
        sandbox_id=sandbox_id,
        name=name,
        image="base",
        image_digest="sha256-0",
        state="running",
        created_at=1.5,
        changed_at=2.5,
        env={"A": "ä"},
        metadata={},
        network="internet",
        limits=Limits(vcpus=1.5),
        trust_host_ca=True,
        user="user",
        cwd="/home/user",
        disk="d1",
        stack=("l2", "l1"),
        generation=3,
        machine_uid="0" * 32,
        versions=Versions("e", "a"),
        machine=b"\x00\xff",
    )


def test_a_row_comes_back_as_it_was_put(tmp_path: Path) -> None:
    async def scenario() -> None:
        for expected in ([], [_row("one"), _row("two", "second")]):
            database = Database(tmp_path / "state.db")
            await database.open()
            await database.put(*expected, durable=True)
            await database.aclose()
        again = Database(tmp_path / "state.db")
        await again.open()
        assert await again.all(SandboxRow) == expected
        await again.delete(expected[0])
        assert await again.all(SandboxRow) == expected[1:]
        await again.aclose()

    asyncio.run(scenario())


def test_rows_are_put_all_or_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        database = Database(tmp_path / "state.db")
        await database.open()
        await database.put(_row("one", "taken"))
        with pytest.raises(NameTakenError):
            await database.put(_row("two"), _row("three", "taken"))
        assert [row.sandbox_id for row in await database.all(SandboxRow)] == ["one"]
        await database.aclose()

    asyncio.run(scenario())


def test_the_tables_are_those_of_the_rows(tmp_path: Path) -> None:
    asyncio.run(_opened(tmp_path / "state.db"))
    with contextlib.closing(sqlite3.connect(tmp_path / "state.db")) as database:
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert names == set(TABLES.values())
        for kind, table in TABLES.items():
            keys = {name: key for _, name, *_, key in database.execute(f"PRAGMA table_info({table})")}
            assert keys.keys() == set(kind.__struct_fields__)
            assert [name for name, key in keys.items() if key] == [KEYS[kind]]


@pytest.mark.parametrize("version", [-1, VERSION + 1, 33])
def test_a_database_of_another_version_is_refused_and_stays_as_it_was(tmp_path: Path, version: int) -> None:
    path = tmp_path / "state.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version={version}")
    with pytest.raises(SupervisorError, match=f"version {version}, .* has {VERSION} ") as raised:
        asyncio.run(_opened(path))
    assert str(tmp_path) in str(raised.value.hint)
    assert "ATOLL_HOME" in str(raised.value.hint)
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchall() == [(version,)]
        assert database.execute("SELECT count(*) FROM sqlite_master").fetchall() == [(0,)]


async def _opened(path: Path) -> None:
    """Open a database twice."""
    for _ in range(2):
        database = Database(path)
        await database.open()
        await database.aclose()


def test_settings_come_from_the_environment_and_nonsense_is_refused() -> None:
    assert read_settings({}) == Settings()
    assert read_settings({"ATOLL_POOL_SIZE": "0", "ATOLL_IDLE_EXIT_S": "1.5"}).idle_exit_s == 1.5
    for wrong in (
        {"ATOLL_POOL_SIZE": "many"},
        {"ATOLL_POOL_SIZE": "-1"},
        {"ATOLL_RESTORES": "0"},
        {"ATOLL_IMAGE_GIB": "-1"},
        {"ATOLL_IMAGE_GIB": "inf"},
        {"ATOLL_AGENT_TIMEOUT_S": "nan"},
        {"ATOLL_LOG": "loud"},
    ):
        (variable,) = wrong
        with pytest.raises(InvalidSpecError, match=f"^{variable} is "):
            read_settings(wrong)


def test_addresses_are_no_registries() -> None:
    with pytest.raises(InvalidSpecError, match="ATOLL_INSECURE_REGISTRIES has 'http://one:5000'"):
        read_settings({"ATOLL_INSECURE_REGISTRIES": "two:5000,http://one:5000"}).insecure()
    with pytest.raises(InvalidSpecError, match="ATOLL_REGISTRY_MIRRORS has "):
        read_settings({"ATOLL_REGISTRY_MIRRORS": "one=http://two/cache"}).mirrors()
    assert read_settings({"ATOLL_INSECURE_REGISTRIES": "two:5000,[::1]:80"}).insecure() == [
        "two:5000",
        "[::1]:80",
    ]


def test_copies_are_restored_on_all_processors_as_far_as_the_supervisor_can_follow() -> None:
    assert [restores_for(count) for count in (1, 2, 6, 64)] == [2, 3, 7, 8]


@pytest.mark.parametrize("name", ["a", "a-1", "0", "a" * 63])
def test_a_name_that_is_a_host_label_is_taken(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", "-a", "A", "a.b", "a" * 64, "ä", "a\n"])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidSpecError):
        check_name(name)


def test_an_id_is_a_host_label_of_20_characters() -> None:
    made = {new_id() for _ in range(100)}
    assert len(made) == 100
    for each in made:
        check_name(each)
        assert len(each) == 20
        assert each[0].isalpha()


def test_variables_that_no_program_can_be_given_are_refused() -> None:
    check_env({"A_1": "any ä\n"})
    for wrong in ({"1A": ""}, {"": ""}, {"A=B": ""}, {"A": "\0"}, {"A": "x" * 300_000}):
        with pytest.raises(InvalidSpecError):
            check_env(wrong)


def test_what_a_crashed_sandbox_allows_is_waking_rollback_and_kill() -> None:
    for allowed in ("wake", "dial", "rollback", "kill"):
        check_action(allowed, "crashed", "x")
    for refused in ("pause", "suspend", "snapshot", "fork"):
        with pytest.raises(StateError):
            check_action(refused, "crashed", "x")


def test_a_killed_sandbox_is_not_found_by_any_action() -> None:
    with pytest.raises(SandboxNotFoundError):
        check_action("kill", "killed", "x")


def test_the_supervisor_leaves_only_when_nothing_runs_and_nobody_asks() -> None:
    def leaves(
        states: tuple[str, ...] = (), clients: int = 0, busy: bool = False, asked_at_s: float = 0.0
    ) -> bool:
        activity = Activity(states=states, clients=clients, busy=busy, asked_at_s=asked_at_s)
        return may_leave(activity, now_s=60.0, idle_exit_s=60.0)

    assert leaves()
    assert leaves(("suspended", "crashed"))
    assert not leaves(("running",))
    assert not leaves(("paused",))
    assert not leaves(clients=1)
    assert not leaves(busy=True)
    assert not leaves(asked_at_s=1.0)


def test_idleness_counts_from_the_end_of_the_last_thing_that_went_on() -> None:
    now_s, states = 0.0, ("running",)
    keeper = Keeper(60.0, lambda: (states, 0, False), clock=lambda: now_s)
    now_s = 100.0
    assert not keeper.may_leave()
    states = ("suspended",)
    now_s = 159.0
    assert not keeper.may_leave()
    now_s = 160.0
    assert keeper.may_leave()


def test_the_holder_ends_when_nothing_needs_its_namespaces() -> None:
    assert may_end_holder([])
    assert may_end_holder(["suspended", "crashed"])
    assert not may_end_holder(["suspended", "running"])


def test_the_pool_makes_what_is_missing() -> None:
    assert missing(2, 0, 1) == 1
    assert missing(0, 0, 0) == 0


def test_the_certificates_beyond_the_images_own_are_found() -> None:
    def certificate(body: str) -> str:
        return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"

    ours, theirs = certificate("QQ=="), certificate("Qg==")
    assert extra_certificates(ours + theirs, ours) == theirs
    assert extra_certificates(ours, ours + theirs) is None
    assert extra_certificates("", ours) is None


def test_a_bundle_that_its_maker_wants_to_be_slow_to_read_is_read_at_once() -> None:
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    for bundle in (begin + " " * (8 << 20), f"{begin}\n" * 300_000, end * 300_000):
        assert certificates(bundle) == {}
    assert list(certificates(f"{begin}{begin} A{end}")) == ["A"]


def test_programs_are_kept_by_content_and_old_ones_while_needed(tmp_path: Path) -> None:
    engine, agent = tmp_path / "runsc", tmp_path / "atoll-agent"
    (tmp_path / "bin").mkdir()
    engine.write_text("engine 1")
    agent.write_text("agent")
    programs = Programs(tmp_path / "bin", engine, agent)
    first = programs.keep()
    engine.write_text("engine 22")
    second = programs.keep()
    assert first.agent == second.agent
    assert programs.engine_path(first).read_text() == "engine 1"
    assert programs.engine_path(second).read_text() == "engine 22"
    assert programs.unneeded({first}) == []
    assert [path.name for path in programs.unneeded(set())] == [first.engine]
    assert Programs(tmp_path / "bin", engine, agent).keep() == second


def test_each_rollback_has_a_disk_of_its_own() -> None:
    assert next_disk("d1") == "d2"
    assert next_disk("d9") == "d10"


def test_a_page_of_logs_never_ends_inside_a_character(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    log.write_bytes("aä".encode()[:-1])
    assert read_page(log, 0).text == "a"
    log.write_bytes("aä".encode())
    assert read_page(log, 1).text == "ä"
    log.write_bytes(b"a\xff")
    assert read_page(log, 0).offset == 2
    assert read_page(tmp_path / "none", 5).offset == 5


def test_a_guest_is_told_whom_to_trust_whenever_it_begins_or_goes_on() -> None:
    image = ImageFacts("sha256-0", {}, "user", "/", "of the host\n", (), authority="of the home\n")
    for row, trusted in (
        (_row("one"), "of the home\nof the host\n"),
        (_row("one").but(trust_host_ca=False), "of the home\n"),
    ):
        told = [first_init(row, image, "10.254.0.1"), branched_init(row, {}, image), woken_init(row, image)]
        assert [init.ca_pem for init in told] == [trusted] * 3
