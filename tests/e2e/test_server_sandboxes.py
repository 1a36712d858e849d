"""The life of sandboxes, as E2B's own client leads it against `atoll serve`."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import time
from collections.abc import Callable, Iterator
from typing import Any

import e2b
import msgspec
import pytest
from e2b import AsyncSandbox, Sandbox, SandboxQuery, SandboxState
from tests.e2e.command_line import said
from tests.e2e.server import Server, serving

import atoll
from atoll.types import EgressVerdict, Policy, UpstreamProxy

WAIT_S = 60.0


@pytest.fixture(autouse=True)
def variables(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `atoll serve` tells its users to set."""
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with killed(Sandbox.create(timeout=600)) as sandbox:
        yield sandbox


@contextlib.contextmanager
def killed(sandbox: Sandbox) -> Iterator[Sandbox]:
    try:
        yield sandbox
    finally:
        sandbox.kill()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_gone(sandbox: Sandbox) -> bool:
    try:
        sandbox.get_info()
    except e2b.SandboxNotFoundException:
        return True
    return False


def listed(query: SandboxQuery | None = None, **more: object) -> list[str]:
    found, pages = [], Sandbox.list(query, **more)  # type: ignore[arg-type]
    while pages.has_next:
        found += [info.sandbox_id for info in pages.next_items()]
    return found


def test_a_sandbox_is_made_used_looked_at_and_killed() -> None:
    metadata = {"user": "ann", "task": "a b&c=d/ü"}
    sandbox = Sandbox.create("base", timeout=120, metadata=metadata, envs={"COLOUR": "blue"})
    with killed(sandbox):
        line = "echo $COLOUR $E2B_SANDBOX $E2B_TEMPLATE_ID $E2B_SANDBOX_ID"
        assert sandbox.commands.run(line, timeout=WAIT_S).stdout == f"blue true base {sandbox.sandbox_id}\n"
        info = sandbox.get_info()
        assert (info.sandbox_id, info.template_id, info.metadata) == (sandbox.sandbox_id, "base", metadata)
        assert info.state == SandboxState.RUNNING
        assert info.lifecycle == {"on_timeout": "kill", "auto_resume": False}
        assert 100 < (info.end_at - info.started_at).total_seconds() < 140
        assert info.cpu_count >= 1
        assert info.memory_mb > 0
        assert sandbox.is_running()
    assert sandbox.kill() is False
    assert not sandbox.is_running()
    with pytest.raises(e2b.SandboxNotFoundException):
        sandbox.get_info()
    with pytest.raises(e2b.SandboxNotFoundException):
        Sandbox.connect(sandbox.sandbox_id)
    with pytest.raises(e2b.SandboxNotFoundException):
        sandbox.set_timeout(60)


def test_lists_have_filters_an_order_and_pages() -> None:
    mark = {"list": "x y&z"}
    first, second, third = (
        Sandbox.create(timeout=600, metadata={**mark, "number": str(number)}) for number in range(3)
    )
    with killed(first), killed(second), killed(third):
        ids = [first.sandbox_id, second.sandbox_id, third.sandbox_id]
        assert listed(SandboxQuery(metadata=mark)) == ids[::-1]
        assert listed(SandboxQuery(metadata=mark), order="asc", limit=1) == ids
        assert listed(SandboxQuery(metadata=mark), limit=2) == ids[::-1]
        assert listed(SandboxQuery(metadata={**mark, "number": "1"})) == [ids[1]]
        assert listed(SandboxQuery(metadata={**mark, "number": "9"})) == []
        started = second.get_info().started_at
        assert listed(SandboxQuery(metadata=mark, started_after=started)) == ids[:0:-1]
        assert listed(SandboxQuery(metadata=mark, template="base")) == ids[::-1]
        assert listed(SandboxQuery(metadata=mark, template="other")) == []
        second.pause()
        assert listed(SandboxQuery(metadata=mark, state=[SandboxState.PAUSED])) == [ids[1]]
        assert listed(SandboxQuery(metadata=mark, state=[SandboxState.RUNNING])) == [ids[2], ids[0]]
        assert listed(SandboxQuery(metadata=mark)) == ids[::-1]


def test_a_timeout_is_changed_and_ends_the_sandbox(sandbox: Sandbox) -> None:
    sandbox.set_timeout(1200)
    info = sandbox.get_info()
    assert 1100 < (info.end_at - datetime.datetime.now(datetime.UTC)).total_seconds() < 1300
    sandbox.set_timeout(0)
    until(lambda: is_gone(sandbox))


def test_a_paused_sandbox_goes_on_where_it_was_and_one_without_memory_boots(sandbox: Sandbox) -> None:
    boot = "cat /proc/sys/kernel/random/boot_id"
    before = sandbox.commands.run(boot, timeout=WAIT_S).stdout
    sandbox.files.write("/home/user/kept", "text")
    assert sandbox.pause() is True
    assert sandbox.pause() is False
    assert sandbox.get_info().state == SandboxState.PAUSED
    assert not sandbox.is_running()
    with pytest.raises(e2b.SandboxNotFoundException):
        sandbox.set_timeout(60)
    assert sandbox.connect(timeout=300).sandbox_id == sandbox.sandbox_id
    assert sandbox.get_info().state == SandboxState.RUNNING
    assert sandbox.commands.run(boot, timeout=WAIT_S).stdout == before
    sandbox.pause(mode="filesystem")
    sandbox.connect()
    assert sandbox.commands.run(boot, timeout=WAIT_S).stdout != before
    assert sandbox.files.read("/home/user/kept") == "text"


def test_connecting_makes_a_lease_longer_and_never_shorter(sandbox: Sandbox) -> None:
    end = sandbox.get_info().end_at
    Sandbox.connect(sandbox.sandbox_id, timeout=10)
    assert abs((sandbox.get_info().end_at - end).total_seconds()) < 1
    Sandbox.connect(sandbox.sandbox_id, timeout=3000)
    assert (sandbox.get_info().end_at - end).total_seconds() > 2000


def test_a_sandbox_that_ends_in_a_pause_is_woken_by_its_next_use_if_asked_for() -> None:
    lifecycle = {"on_timeout": "pause", "auto_resume": True}
    with killed(Sandbox.create(timeout=600, lifecycle=lifecycle)) as sandbox:  # type: ignore[arg-type]
        assert sandbox.get_info().lifecycle == lifecycle
        sandbox.set_timeout(0)
        until(lambda: sandbox.get_info().state == SandboxState.PAUSED)
        assert sandbox.commands.run("echo awake", timeout=WAIT_S).stdout == "awake\n"
        info = sandbox.get_info()
        assert info.state == SandboxState.RUNNING
        assert (info.end_at - info.started_at).total_seconds() > 250


def test_forks_have_the_files_and_an_id_of_their_own(sandbox: Sandbox) -> None:
    sandbox.files.write("/home/user/kept", "text")
    forks = sandbox.fork(timeout=300, count=2)
    with contextlib.ExitStack() as stack:
        copies = [stack.enter_context(killed(fork)) for fork in forks if isinstance(fork, Sandbox)]
        assert len({sandbox.sandbox_id, *(copy.sandbox_id for copy in copies)}) == 3
        for copy in copies:
            line = "echo $E2B_SANDBOX_ID $(cat kept)"
            assert copy.commands.run(line, timeout=WAIT_S).stdout == f"{copy.sandbox_id} text\n"
            info = copy.get_info()
            assert 250 < (info.end_at - info.started_at).total_seconds() < 350
    sandbox.kill()
    with pytest.raises(e2b.SandboxNotFoundException):
        sandbox.fork()


def test_snapshots_are_named_made_again_listed_started_from_and_deleted(sandbox: Sandbox) -> None:
    sandbox.files.write("/home/user/kept", "one")
    first = sandbox.create_snapshot(name="state")
    assert first.snapshot_id == "default/state:default"
    assert first.names == [first.snapshot_id]
    sandbox.files.write("/home/user/kept", "two")
    assert sandbox.create_snapshot(name="state").snapshot_id == first.snapshot_id
    unnamed = sandbox.create_snapshot()
    assert unnamed.names == []
    pages = sandbox.list_snapshots()  # type: ignore[misc]  # E2B's overloads
    assert {one.snapshot_id for one in pages.next_items()} == {first.snapshot_id, unnamed.snapshot_id}
    assert [one.snapshot_id for one in Sandbox.list_snapshots(name="state").next_items()] == [
        first.snapshot_id
    ]
    assert Sandbox.list_snapshots(name="unknown").next_items() == []
    with killed(Sandbox.create(first.snapshot_id, timeout=300)) as copy:
        assert copy.files.read("/home/user/kept") == "two"
    for snapshot in (first, unnamed):
        assert Sandbox.delete_snapshot(snapshot.snapshot_id) is True
        assert Sandbox.delete_snapshot(snapshot.snapshot_id) is False
    assert sandbox.list_snapshots().next_items() == []  # type: ignore[misc]  # E2B's overloads
    with pytest.raises(e2b.SandboxException, match="not found"):
        Sandbox.create(first.snapshot_id)


def test_metrics_tell_what_a_sandbox_uses(sandbox: Sandbox) -> None:
    until(lambda: bool(sandbox.get_metrics()))
    metric = sandbox.get_metrics()[-1]
    assert metric.cpu_count >= 1
    assert 0 < metric.mem_used < metric.mem_total
    assert metric.disk_total > 0
    early = datetime.datetime.now() - datetime.timedelta(days=2)
    assert sandbox.get_metrics(start=early - datetime.timedelta(days=1), end=early) == []


def test_the_network_is_switched_off_and_on(sandbox: Sandbox) -> None:
    sandbox.update_network({"allow_internet_access": False})
    info = sandbox.get_info()
    assert info.allow_internet_access is False
    assert info.network is not None
    assert info.network["deny_out"] == ["0.0.0.0/0"]
    sandbox.update_network({})
    assert "deny_out" not in (sandbox.get_info().network or {})


def test_what_a_sandbox_may_reach_is_told_as_it_was_given_and_an_update_replaces_it() -> None:
    rules: Any = {"api.example.com": [{"transform": {"headers": {"x-team": "a"}}}]}
    given: Any = {
        "allow_out": ["api.example.com", "192.0.2.0/24"],
        "deny_out": ["0.0.0.0/0"],
        "rules": rules,
    }
    given["https_ports"] = [9443, 8443]
    with killed(Sandbox.create(timeout=600, network=given)) as sandbox:
        told = sandbox.get_info().network
        assert told is not None
        assert told["https_ports"] == [8443, 9443]
        assert {name: told.get(name) for name in ("allow_out", "deny_out", "rules")} == {
            "allow_out": ["api.example.com", "192.0.2.0/24"],
            "deny_out": ["0.0.0.0/0"],
            "rules": rules,
        }
        (fork,) = sandbox.fork(timeout=600)
        assert isinstance(fork, Sandbox)
        with killed(fork):
            assert fork.get_info().network == told
        sandbox.update_network({"deny_out": ["192.0.2.7"]})
        told = sandbox.get_info().network
        assert told is not None
        assert told["deny_out"] == ["192.0.2.7"]
        assert not {"allow_out", "rules"} & set(told)
        proxy: Any = {"address": "proxy.example.com:1080", "username": "ann", "password": "pr0xy-3141592653"}
        sandbox.update_network({"egress_proxy": proxy})
        told = sandbox.get_info().network
        assert told is not None
        assert told["egress_proxy"] == {"address": "proxy.example.com:1080", "username": "ann"}
        assert told["https_ports"] == [8443, 9443]
        with pytest.raises(e2b.SandboxException, match="400.*ALL_TRAFFIC"):
            sandbox.update_network({"allow_out": ["example.com"]})
        assert sandbox.get_info().network == told


def test_public_traffic_that_is_not_allowed_closes_the_ports() -> None:
    closed: Any = {"allow_public_traffic": False}
    with killed(Sandbox.create(timeout=600, network=closed)) as sandbox:
        assert sandbox.traffic_access_token
        assert atoll.Sandbox.get(sandbox.sandbox_id).ports == "closed"
    made = said("create", "--ports", "closed", "--team", "default")
    assert "ports      closed" in said("info", made).splitlines()
    said("kill", made)


def test_a_request_is_judged_as_e2b_would(server: Server) -> None:
    def transform(header: str) -> list[dict[str, Any]]:
        return [{"transform": {"headers": {header: "a"}}}]

    rules = {"api.example.com": transform("x-one"), "*.example.com": transform("x-two")}
    given: Any = {"allow_out": ["*.example.com"], "deny_out": ["0.0.0.0/0"], "rules": rules}
    with killed(Sandbox.create(timeout=600, network=given)) as sandbox:
        info = atoll.Sandbox.get(sandbox.sandbox_id)
        assert isinstance(info.network, Policy)
        # Behind a proxy, which resolves the names: there need be none of these.
        policy = msgspec.structs.replace(info.network, proxy=UpstreamProxy(url="http://192.0.2.1:3128"))
        with contextlib.closing(atoll.Sandbox.of(info)) as here:

            def asked(url: str) -> EgressVerdict:
                return here.egress.test("GET", url, policy=policy)

            assert asked("https://api.example.com/").changes == ["set x-one"]
            assert asked("http://www.example.com/").changes == ["set x-two"]
            assert asked("https://example.com/").action == "deny"
            assert asked("tcp://www.example.com:22").action == "allow"


def test_a_denied_address_is_refused_at_once() -> None:
    network: Any = {"deny_out": ["192.0.2.0/24"]}
    line = "exec 3<>/dev/tcp/192.0.2.1/443 && cat <&3"
    with killed(Sandbox.create(timeout=600, network=network)) as sandbox:
        began = time.monotonic()
        with pytest.raises(e2b.CommandExitException):
            sandbox.commands.run(f"bash -c '{line}'", timeout=WAIT_S)
        assert time.monotonic() - began < 10


def test_a_request_that_comes_again_makes_no_second_sandbox() -> None:
    with killed(Sandbox.create(timeout=300, idempotency_key="one-of-a-kind")) as first:
        again = Sandbox.create(timeout=300, idempotency_key="one-of-a-kind")
        assert again.sandbox_id == first.sandbox_id
        with pytest.raises(e2b.SandboxException, match="422"):
            Sandbox.create(timeout=301, idempotency_key="one-of-a-kind")


def test_a_fork_is_not_what_an_earlier_request_with_its_originals_key_has_made(server: Server) -> None:
    first = Sandbox.create(timeout=300, idempotency_key="original")
    (fork,) = first.fork(timeout=300)
    assert isinstance(fork, Sandbox)
    first.kill()
    with killed(fork), serving() as other:  # which knows no more than one that was started again
        again = Sandbox.create(timeout=300, idempotency_key="original", api_url=other.url, api_key=server.key)
        with killed(again):
            assert again.sandbox_id != fork.sandbox_id


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"template": "no-such-template"}, "404: template 'no-such-template' not found"),
        ({"template": "../../etc"}, "400: templateID"),
        ({"timeout": -1}, "400: .*timeout"),
        ({"metadata": {"a": "b" * 70_000}}, "400: .*metadata"),
        ({"envs": {"not a name": "x"}}, "400: .*not a name"),
        ({"network": {"deny_out": ["example.com"]}}, "400: invalid denied CIDR example.com"),
        ({"network": {"allow_out": ["example.com"]}}, "400: When specifying allowed domains"),
        ({"network": {"https_ports": [49983]}}, "400: invalid port 49983"),
        ({"network": {"egress_proxy": {"address": "p.example:1080", "tls": True}}}, "501: TLS to the egress"),
        ({"network": {"egress_proxy": {"address": "10.0.0.1:1080"}}}, "400: invalid egress proxy address"),
        (
            {"iam": {"tokens": {"a": {"audience": "b", "token_type": "JWT-SVID"}}}},
            "400: Sandbox IAM workload",
        ),
    ],
)
def test_what_cannot_be_made_is_refused_with_a_reason(wanted: dict[str, object], words: str) -> None:
    with pytest.raises(e2b.SandboxException, match=words):
        Sandbox.create(**wanted)  # type: ignore[arg-type]


def test_a_wrong_key_opens_nothing_whether_a_sandbox_is_there_or_not(sandbox: Sandbox) -> None:
    wrong = "e2b_" + "0" * 40
    told = []
    for sandbox_id in (sandbox.sandbox_id, "a" * 20, "../secrets"):
        with pytest.raises(e2b.AuthenticationException) as refused:
            Sandbox.get_info(sandbox_id, api_key=wrong)
        told.append(str(refused.value))
    assert len(set(told)) == 1
    with pytest.raises(e2b.AuthenticationException):
        Sandbox.create(api_key=wrong)


def test_the_asynchronous_client_leads_the_same_life() -> None:
    async def life() -> None:
        sandbox = await AsyncSandbox.create(timeout=300, metadata={"kind": "async"})
        try:
            assert (await sandbox.commands.run("echo hi", timeout=WAIT_S)).stdout == "hi\n"
            (info,) = await AsyncSandbox.list(SandboxQuery(metadata={"kind": "async"})).next_items()
            assert info.sandbox_id == sandbox.sandbox_id
            assert await sandbox.pause() is True
            assert await sandbox.pause() is False
            await sandbox.connect(timeout=300)
            (fork,) = await sandbox.fork(timeout=60)
            assert isinstance(fork, AsyncSandbox)
            assert await fork.kill() is True
            assert (await sandbox.get_info()).state == SandboxState.RUNNING
        finally:
            assert await sandbox.kill() is True
        with pytest.raises(e2b.SandboxNotFoundException):
            await sandbox.get_info()

    asyncio.run(life())
