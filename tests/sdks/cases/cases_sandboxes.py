"""Life cycle, copies, lists, metrics and network of sandboxes through the server."""

from __future__ import annotations

import datetime
import uuid
from typing import Any, cast

import e2b
import pytest

from conftest import BOUND_S, Face

pytestmark = pytest.mark.anyio


async def test_a_sandbox_has_what_it_was_made_with_until_it_is_killed(face: Face, anew: Any) -> None:
    made = await anew(metadata={"purpose": "facts"}, envs={"WORD": "inside"})
    assert (await face.do(made.commands.run("echo $WORD"))).stdout == "inside\n"
    info = await face.do(made.get_info())
    assert (info.sandbox_id, info.metadata, info.state) == (
        made.sandbox_id,
        {"purpose": "facts"},
        e2b.SandboxState.RUNNING,
    )
    assert info.cpu_count >= 1
    assert info.memory_mb >= 64
    assert info.end_at > info.started_at
    assert await face.do(made.is_running())
    assert await face.do(made.kill())
    assert not await face.do(made.is_running())
    assert not await face.do(made.kill())
    await face.raises(e2b.NotFoundException, made.get_info)
    await face.raises(e2b.NotFoundException, lambda: face.Sandbox.connect(made.sandbox_id))


async def test_who_has_the_id_connects_and_kills(face: Face, anew: Any) -> None:
    made = await anew()
    await face.do(made.files.write("/tmp/a", "same"))
    other = await face.do(face.Sandbox.connect(made.sandbox_id, timeout=600))
    assert await face.do(other.files.read("/tmp/a")) == "same"
    assert (await face.do(face.Sandbox.get_info(made.sandbox_id))).sandbox_id == made.sandbox_id
    await face.do(face.Sandbox.set_timeout(made.sandbox_id, 900))
    assert await face.do(face.Sandbox.kill(made.sandbox_id))


async def test_a_timeout_ends_a_sandbox_and_can_be_moved(face: Face, anew: Any) -> None:
    short = await anew(timeout=600)
    before = (await face.do(short.get_info())).end_at
    await face.do(short.set_timeout(3000))
    assert (await face.do(short.get_info())).end_at > before
    await face.do(short.set_timeout(1))
    await face.until(lambda: stopped(face, short))
    await face.raises(e2b.NotFoundException, short.get_info)


async def stopped(face: Face, sandbox: Any) -> bool:
    return not await face.do(sandbox.is_running())


async def test_a_paused_sandbox_goes_on_where_it_was(face: Face, anew: Any) -> None:
    made = await anew()
    running = await face.do(made.commands.run("echo before; exec sleep 5000", background=True, timeout=0))
    boot = (await face.do(made.commands.run("cat /proc/sys/kernel/random/boot_id"))).stdout
    assert await face.do(made.pause())
    assert not await face.do(made.pause())
    assert not await face.do(made.is_running())
    assert (await face.do(face.Sandbox.get_info(made.sandbox_id))).state == e2b.SandboxState.PAUSED
    again = await face.do(made.connect(timeout=600))
    assert running.pid in [one.pid for one in await face.do(again.commands.list())]
    assert (await face.do(again.commands.run("cat /proc/sys/kernel/random/boot_id"))).stdout == boot


async def test_a_pause_without_memory_keeps_the_disk_alone(face: Face, anew: Any) -> None:
    made = await anew()
    running = await face.do(made.commands.run("exec sleep 5000", background=True, timeout=0))
    await face.do(made.files.write("/home/user/kept", "disk"))
    boot = (await face.do(made.commands.run("cat /proc/sys/kernel/random/boot_id"))).stdout
    assert await face.do(made.pause(keep_memory=False))
    again = await face.do(face.Sandbox.connect(made.sandbox_id, timeout=600))
    assert await face.do(again.files.read("/home/user/kept")) == "disk"
    assert running.pid not in [one.pid for one in await face.do(again.commands.list())]
    assert (await face.do(again.commands.run("cat /proc/sys/kernel/random/boot_id"))).stdout != boot


async def test_beta_pause_is_pause(face: Face, anew: Any) -> None:
    made = await anew()
    await face.do(made.beta_pause())
    assert (await face.do(made.get_info())).state == e2b.SandboxState.PAUSED


async def test_auto_resume_wakes_a_sandbox_that_its_timeout_put_to_sleep(face: Face, anew: Any) -> None:
    made = await anew(timeout=2, lifecycle={"on_timeout": "pause", "auto_resume": True})
    await face.until(lambda: paused(face, made))
    assert (await face.do(made.commands.run("echo awake"))).stdout == "awake\n"
    assert (await face.do(made.get_info())).state == e2b.SandboxState.RUNNING


async def paused(face: Face, sandbox: Any) -> bool:
    return cast(bool, (await face.do(sandbox.get_info())).state == e2b.SandboxState.PAUSED)


async def test_without_auto_resume_a_paused_sandbox_stays_so(face: Face, anew: Any) -> None:
    made = await anew(lifecycle={"on_timeout": "pause"})
    await face.do(made.pause())
    await face.raises(e2b.TimeoutException, lambda: made.commands.run("true"))
    assert (await face.do(made.get_info())).state == e2b.SandboxState.PAUSED


async def test_forks_go_on_from_one_state(face: Face, anew: Any) -> None:
    made = await anew(envs={"WORD": "same"})
    await face.do(made.files.write("/tmp/a", "1"))
    copies = await face.do(made.fork(timeout=600, count=2))
    try:
        assert len({made.sandbox_id, *(one.sandbox_id for one in copies)}) == 3
        await face.do(copies[0].files.write("/tmp/a", "2"))
        read = [await face.do(one.files.read("/tmp/a")) for one in (made, *copies)]
        assert read == ["1", "2", "1"]
        assert (await face.do(copies[1].commands.run("echo $WORD"))).stdout == "same\n"
    finally:
        for one in copies:
            await face.do(one.kill())
    [another] = await face.do(face.Sandbox.fork(made.sandbox_id, timeout=600))
    assert await face.do(another.kill())


async def test_a_snapshot_is_listed_started_from_and_deleted(face: Face, anew: Any) -> None:
    made = await anew()
    await face.do(made.files.write("/home/user/state", "kept"))
    name = f"snap-{uuid.uuid4().hex[:8]}"
    first = await face.do(made.create_snapshot(name=name))
    await face.do(made.files.write("/home/user/state", "changed"))
    started = await anew(first.snapshot_id)
    assert await face.do(started.files.read("/home/user/state")) == "kept"
    second = await face.do(made.create_snapshot(name=name))
    assert second.snapshot_id == first.snapshot_id
    unnamed = await face.do(face.Sandbox.create_snapshot(made.sandbox_id))
    pages = made.list_snapshots()
    of_it = await face.do(pages.next_items())
    assert {first.snapshot_id, unnamed.snapshot_id} <= {one.snapshot_id for one in of_it}
    by_name = await face.do(face.Sandbox.list_snapshots(name=name).next_items())
    assert [one.snapshot_id for one in by_name] == [first.snapshot_id]
    assert await face.do(face.Sandbox.delete_snapshot(unnamed.snapshot_id))
    assert not await face.do(face.Sandbox.delete_snapshot(unnamed.snapshot_id))
    await face.do(started.kill())
    assert await face.do(face.Sandbox.delete_snapshot(first.snapshot_id))


async def test_lists_filter_and_page(face: Face, anew: Any) -> None:
    mark = uuid.uuid4().hex
    made = [await anew(metadata={"mark": mark}) for _ in range(3)]
    await face.do(made[2].pause())
    query = e2b.SandboxQuery(metadata={"mark": mark})
    pages = face.Sandbox.list(query=query, limit=2)
    shown = list(await face.do(pages.next_items()))
    assert pages.has_next
    assert pages.next_token
    shown += await face.do(pages.next_items())
    assert not pages.has_next
    assert [one.sandbox_id for one in shown] == [one.sandbox_id for one in reversed(made)]
    asleep = e2b.SandboxQuery(metadata={"mark": mark}, state=[e2b.SandboxState.PAUSED])
    assert [one.sandbox_id for one in await face.do(face.Sandbox.list(query=asleep).next_items())] == [
        made[2].sandbox_id
    ]
    since = e2b.SandboxQuery(metadata={"mark": mark}, started_after=shown[1].started_at)
    first = await face.do(face.Sandbox.list(query=since, order="asc").next_items())
    assert [one.sandbox_id for one in first] == [made[1].sandbox_id, made[2].sandbox_id]


async def test_metrics_have_a_history(face: Face, sandbox: Any) -> None:
    found = await face.until(lambda: sandbox.get_metrics())
    assert found[-1].mem_total > found[-1].mem_used >= 0
    assert found[-1].cpu_count >= 1
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    assert await face.do(sandbox.get_metrics(start=later, end=later + datetime.timedelta(hours=1))) == []


async def test_the_network_is_turned_off_and_on(face: Face, anew: Any) -> None:
    closed = await anew(allow_internet_access=False)
    assert (await face.do(closed.get_info())).allow_internet_access is False
    await face.do(closed.update_network({"allow_internet_access": True}))
    assert (await face.do(closed.get_info())).allow_internet_access is True
    await face.do(closed.update_network({"allow_internet_access": False}))
    assert (await face.do(closed.get_info())).allow_internet_access is False


async def test_wrong_keys_and_wrong_templates_have_their_errors(face: Face, sandbox: Any) -> None:
    wrong = "e2b_" + "0" * 40
    await face.raises(e2b.AuthenticationException, lambda: face.Sandbox.create(api_key=wrong))
    await face.raises(
        e2b.AuthenticationException, lambda: face.Sandbox.kill(sandbox.sandbox_id, api_key=wrong)
    )
    error = await face.raises(e2b.SandboxException, lambda: face.Sandbox.create("no-such-template"))
    assert "no-such-template" in str(error)
    await face.raises(e2b.SandboxException, lambda: sandbox.set_timeout(-1))
    assert isinstance(await face.do(sandbox.is_running()), bool)


async def test_a_call_that_takes_too_long_is_a_timeout(face: Face, sandbox: Any) -> None:
    await face.raises(e2b.TimeoutException, lambda: sandbox.files.list("/tmp", request_timeout=0.0001))


async def test_ports_have_host_names(face: Face, sandbox: Any) -> None:
    host = sandbox.get_host(3000)
    assert host.startswith(f"3000-{sandbox.sandbox_id}.")
    assert BOUND_S
    assert sandbox.sandbox_domain
    assert sandbox.envd_api_url.startswith("http")
    assert sandbox.envd_direct_url.startswith("http")
    assert sandbox.connection_config.api_key.startswith("e2b_")


async def test_a_sandbox_closed_to_the_public_has_a_traffic_token(face: Face, anew: Any) -> None:
    closed = await anew(network={"allow_public_traffic": False})
    assert closed.traffic_access_token
