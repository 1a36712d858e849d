"""Templates and builds: what the supervisor keeps of them, and what it does when nobody goes on with one."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock, patch

from atoll.errors import NoSpaceError
from atoll.supervisor.own_exit import Keeper
from atoll.supervisor.storage.build_cache import STEPS_MOST, UNUSED_MOST_S
from atoll.supervisor.storage.template_rows import TemplateRows
from atoll.supervisor.templates import building
from tests.unit.supervisor.harness import Harness, with_harness


async def begun(harness: Harness, name: str, **more: object) -> tuple[str, asyncio.Task[Any]]:
    """A build that goes on, and the connection that holds it."""
    build = (await harness.ask("POST", "/v1/templates", {"name": name, **more})).json
    hold = asyncio.create_task(harness.ask("POST", f"/v1/builds/{build['build_id']}/begin"))
    await harness.until(lambda: harness.system.templates.rows.is_building(build["build_id"]))
    return build["build_id"], hold


async def kept(harness: Harness, build_id: str, *keys: str) -> str:
    """A snapshot of a sandbox of a build, after steps of these keys."""
    sandbox = await harness.create(attributes={"atoll.build": build_id})
    path = f"/v1/sandboxes/{sandbox['sandbox_id']}/snapshots"
    snapshot_id: str = (await harness.ask("POST", path, {"build_id": build_id})).json["snapshot_id"]
    for key in keys:
        body = {"step_key": key, "snapshot_id": snapshot_id}
        assert (await harness.ask("POST", f"/v1/builds/{build_id}/steps", body)).status == 204
    return snapshot_id


async def built(harness: Harness, name: str, *keys: str, **more: object) -> str:
    """A template that is ready, of one snapshot."""
    build_id, hold = await begun(harness, name, **more)
    snapshot_id = await kept(harness, build_id, *keys)
    body = {"state": "ready", "snapshot_id": snapshot_id}
    assert (await harness.ask("POST", f"/v1/builds/{build_id}/finish", body)).json["state"] == "ready"
    await hold
    return snapshot_id


async def states(harness: Harness, name: str) -> list[str]:
    return [build["state"] for build in (await harness.ask("GET", f"/v1/templates/{name}")).json["builds"]]


@with_harness
async def test_a_build_whose_builder_goes_away_has_failed_and_leaves_nothing(harness: Harness) -> None:
    build_id, hold = await begun(harness, "one")
    await kept(harness, build_id)
    hold.cancel()
    await harness.until(lambda: not harness.system.templates.rows.is_building(build_id))
    await harness.until(
        lambda: not harness.system.inventory.all() and not harness.system.inventory.snapshots()
    )
    assert await states(harness, "one") == ["failed"]
    missing = await harness.ask("GET", "/v1/resolved?ref=one")
    assert missing.json["message"] == "template 'one' has no build that is ready: the last one failed"
    late = await harness.ask("POST", "/v1/sandboxes", {"attributes": {"atoll.build": build_id}})
    assert late.status == 409
    assert not harness.system.inventory.all()


@with_harness
async def test_a_sandbox_that_was_still_being_made_when_its_build_ended_is_killed(harness: Harness) -> None:
    build_id, hold = await begun(harness, "one")
    create = harness.system.creation.create

    async def slow(*arguments: Any) -> Any:
        made = await create(*arguments)
        hold.cancel()
        await harness.until(lambda: not harness.system.templates.rows.is_building(build_id))
        return made

    with patch.object(harness.system.creation, "create", slow):
        late = await harness.ask("POST", "/v1/sandboxes", {"attributes": {"atoll.build": build_id}})
    assert late.status == 409
    await harness.until(lambda: not harness.system.inventory.all())


@with_harness
async def test_a_build_does_not_outlive_its_supervisor_and_templates_do(harness: Harness) -> None:
    snapshot_id = await built(harness, "done")
    build_id, hold = await begun(harness, "going")
    await kept(harness, build_id)
    await harness.crash()
    hold.cancel()
    for end in ("", "-wal", "-shm"):
        harness.home.database.with_name(harness.home.database.name + end).unlink(missing_ok=True)
    await harness.start()
    assert await states(harness, "going") == ["failed"]
    assert not harness.system.inventory.all()
    assert [row.snapshot_id for row in harness.system.inventory.snapshots()] == [snapshot_id]
    assert (await harness.ask("GET", "/v1/resolved?ref=done")).json["snapshot_id"] == snapshot_id


@with_harness
async def test_a_snapshot_goes_when_no_tag_step_or_sandbox_needs_it(harness: Harness) -> None:
    first = await built(harness, "web", "key")
    assert (await harness.ask("DELETE", f"/v1/snapshots/{first}")).status == 409
    sandbox = await harness.create(template="web")
    second = await built(harness, "web")
    found = {row.snapshot_id for row in harness.system.inventory.snapshots()}
    assert found == {first, second}
    pruned = (await harness.ask("DELETE", "/v1/steps")).json
    assert (pruned["steps"], pruned["snapshots"], pruned["freed_bytes"]) == (1, 0, 0)
    assert "needed by " in pruned["kept"][0]
    assert "1 states are needed by templates" in pruned["kept"][-1]
    assert {row.snapshot_id for row in harness.system.inventory.snapshots()} == {first, second}
    await harness.ask("DELETE", f"/v1/sandboxes/{sandbox['sandbox_id']}")
    await harness.system.templates.sweep()
    assert {row.snapshot_id for row in harness.system.inventory.snapshots()} == {second}
    assert (await harness.ask("DELETE", "/v1/templates/web")).status == 204
    assert not harness.system.inventory.snapshots()


async def chain(harness: Harness, build_id: str, count: int) -> list[str]:
    """Snapshots of a build, each of a sandbox from the one before."""
    found: list[str] = []
    for index in range(count):
        base = {"from_snapshot": found[-1]} if found else {}
        sandbox = await harness.create(attributes={"atoll.build": build_id}, **base)
        path = f"/v1/sandboxes/{sandbox['sandbox_id']}/snapshots"
        found.append((await harness.ask("POST", path, {"build_id": build_id})).json["snapshot_id"])
        await harness.system.templates.steps.add(f"step {index}", found[-1])
    return found


@with_harness
async def test_pruning_erases_states_that_others_were_built_on_and_says_what_it_freed(
    harness: Harness,
) -> None:
    build_id, hold = await begun(harness, "web")
    *steps, last = await chain(harness, build_id, 3)
    body = {"state": "ready", "snapshot_id": last}
    assert (await harness.ask("POST", f"/v1/builds/{build_id}/finish", body)).json["state"] == "ready"
    await hold
    assert len(harness.system.inventory.snapshots()) == 3
    memory_bytes = sum(row.memory_bytes for row in harness.system.inventory.snapshots()[:2])
    pruned = (await harness.ask("DELETE", "/v1/steps")).json
    assert (pruned["steps"], pruned["snapshots"]) == (3, 2)
    assert pruned["freed_bytes"] >= memory_bytes > 0
    assert [row.snapshot_id for row in harness.system.inventory.snapshots()] == [last]


@with_harness
async def test_a_build_whose_steps_copy_the_disk_keeps_the_last_ones_that_fit(harness: Harness) -> None:
    templates = harness.system.templates
    for copies, most_bytes, left in ((False, 0, 3), (True, 1 << 30, 3), (True, 0, 1)):
        templates.copied_disks = copies
        await harness.ask("DELETE", "/v1/steps")
        build_id, hold = await begun(harness, "web")
        *_, last = await chain(harness, build_id, 3)
        with patch.object(building, "_COPIES_MOST_BYTES", most_bytes):
            await harness.ask("POST", f"/v1/builds/{build_id}/finish", {"state": "failed"})
        await hold
        await harness.until(lambda: len(harness.system.inventory.snapshots()) == left)  # noqa: B023
        found = [row.snapshot_id for row in harness.system.inventory.snapshots()]
        assert (len(found), found[-1]) == (left, last)


@with_harness
async def test_the_deepest_step_that_is_there_is_found_and_old_ones_go(harness: Harness) -> None:
    await built(harness, "web", "a", "b")
    build_id, hold = await begun(harness, "other")

    async def asked(*keys: str) -> str:
        answer = await harness.ask("POST", f"/v1/builds/{build_id}/cached", {"keys": keys})
        key: str = answer.json["step_key"]
        return key

    assert [await asked("c", "b", "a"), await asked("c"), await asked()] == ["b", "", ""]
    for index in range(STEPS_MOST):
        await harness.system.templates.steps.add(f"more {index}", "nothing")
        assert await asked("b") == "b"
    assert await asked("a") == ""
    assert await asked("more 5") == "", "its snapshot is gone"
    hold.cancel()


@with_harness
async def test_names_are_those_of_a_team_and_public_ones_of_nobody_are_for_all(harness: Harness) -> None:
    for team in ("red", "blue"):
        await harness.ask("POST", "/v1/teams", {"name": team})
    own = await built(harness, "web", team=None)
    theirs = await built(harness, "web", team="red")

    async def resolved(ref: str, team: str) -> Any:
        answer = await harness.ask("GET", f"/v1/resolved?ref={ref}&team={team}")
        return answer.json["snapshot_id"] if answer.status == 200 else answer.json["message"]

    assert await resolved("web", "red") == theirs
    assert await resolved("web", "blue") == "template 'web' not found"
    assert await resolved("red/web", "blue") == "template 'red/web' not found"
    assert (await harness.ask("POST", "/v1/templates/web/publish", {"public": True})).status == 200
    assert await resolved("web", "blue") == own
    assert await resolved("web", "red") == theirs
    made = (await harness.ask("POST", "/v1/templates", {"name": "web"})).json
    failed = {"state": "failed", "step": "1" * 1000, "reason": "secret"}
    (await harness.ask("POST", f"/v1/builds/{made['build_id']}/finish", failed))
    [*_, kept] = (await harness.ask("GET", "/v1/templates/web")).json["builds"]
    assert (kept["step"], kept["reason"]) == ("1" * 64, "secret")
    shown = (await harness.ask("GET", "/v1/templates/web?team=blue")).json["builds"]
    assert [each["snapshot_id"] for each in shown] == [own]
    assert await resolved("web:v9", "red") == "tag 'v9' does not exist for template 'web'"
    assert await resolved(f"web:{shown[0]['build_id']}", "blue") == own, "a build has no need of a tag"
    assert "does not exist" in await resolved(f"web:{made['build_id']}", "blue"), "it has failed"
    assert (
        (await harness.ask("GET", "/v1/resolved?ref=web:v9"))
        .json["hint"]
        .endswith("a tag that it has: default")
    )
    assert (await harness.ask("DELETE", "/v1/templates/web?team=blue")).status == 404
    assert (await harness.ask("GET", "/v1/resolved?ref=base&team=blue")).json["image"] == "base"


@with_harness
async def test_a_team_builds_no_more_at_once_than_its_quota(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "red", "quotas": {"builds": 1, "ttl_s": 60}})
    build_id, hold = await begun(harness, "one", team="red")
    sandbox = await harness.create(attributes={"atoll.build": build_id}, team="red")
    assert sandbox["lifecycle"]["ttl_s"] == 60
    other = (await harness.ask("POST", "/v1/templates", {"name": "two", "team": "red"})).json
    assert (await harness.ask("POST", f"/v1/builds/{other['build_id']}/begin")).status == 429
    assert (await harness.ask("DELETE", "/v1/teams/red")).status == 409
    await harness.ask("POST", f"/v1/builds/{build_id}/finish", {"state": "cancelled"})
    await hold
    hold = asyncio.create_task(harness.ask("POST", f"/v1/builds/{other['build_id']}/begin"))
    await harness.until(lambda: harness.system.templates.rows.is_building(other["build_id"]))
    hold.cancel()


@with_harness
async def test_a_build_that_is_ready_has_its_tags_however_many_builds_were_asked_for_meanwhile(
    harness: Harness,
) -> None:
    build_id, hold = await begun(harness, "one")
    snapshot_id = await kept(harness, build_id)
    for _ in range(40):
        await harness.ask("POST", "/v1/templates", {"name": "one"})
    body = {"state": "ready", "snapshot_id": snapshot_id}
    assert (await harness.ask("POST", f"/v1/builds/{build_id}/finish", body)).json["state"] == "ready"
    await hold
    assert (await harness.ask("GET", "/v1/resolved?ref=one")).json["snapshot_id"] == snapshot_id


@with_harness
async def test_a_template_is_built_again_however_many_of_its_builds_have_tags(harness: Harness) -> None:
    for number in range(35):
        await built(harness, f"one:{number}")
    assert await states(harness, "one") == ["ready"] * 35
    tags = [f"more{number}" for number in range(30)]
    refused = await harness.ask("POST", "/v1/templates", {"name": "one", "tags": tags})
    assert (refused.json["code"], "64 tags at most" in refused.json["message"]) == ("invalid_spec", True)


@with_harness
async def test_a_supervisor_starts_on_a_full_disk_in_the_middle_of_a_build(harness: Harness) -> None:
    build_id, hold = await begun(harness, "one")
    await kept(harness, build_id)
    await harness.crash()
    hold.cancel()
    with patch.object(TemplateRows, "put", AsyncMock(side_effect=NoSpaceError("full"))):
        await harness.start()
    assert await states(harness, "one") == ["failed"]
    assert not harness.system.inventory.all()
    assert not harness.system.inventory.snapshots()


@with_harness
async def test_a_step_that_nobody_used_for_a_month_goes_with_its_snapshot(harness: Harness) -> None:
    snapshot_id = await built(harness, "one", "key")
    await harness.ask("DELETE", "/v1/templates/one")
    other = await built(harness, "two", "other")
    steps = harness.system.templates.steps
    await steps.add("key", other)
    harness.now_s += UNUSED_MOST_S / 2
    assert await steps.first(["key"])
    harness.now_s += UNUSED_MOST_S * 0.75
    await steps.tidy()
    assert steps.has(other)
    assert await steps.first(["other"]) is None
    assert snapshot_id not in {row.snapshot_id for row in harness.system.inventory.snapshots()}


@with_harness
async def test_a_build_keeps_the_supervisor_awake_before_it_has_a_sandbox(harness: Harness) -> None:
    build_id, hold = await begun(harness, "one")
    harness.system.keeper = Keeper(0.0, harness.system._look)
    assert not harness.system.keeper.may_leave()
    await harness.ask("POST", f"/v1/builds/{build_id}/finish", {"state": "cancelled"})
    await hold
    await harness.until(harness.system.keeper.may_leave)


@with_harness
async def test_a_deleted_template_leaves_no_steps_of_builds_that_it_had_forgotten(harness: Harness) -> None:
    await built(harness, "one", "key")
    await built(harness, "one", "other")
    for _ in range(40):
        await harness.ask("POST", "/v1/templates", {"name": "one"})
    await harness.ask("DELETE", "/v1/templates/one")
    await harness.until(lambda: not harness.system.inventory.snapshots())


@with_harness
async def test_the_name_of_the_default_image_is_the_image_until_a_build_of_it_is_ready(
    harness: Harness,
) -> None:
    async def resolved(more: str = "") -> Any:
        return (await harness.ask("GET", f"/v1/resolved?ref=base{more}")).json

    build_id, hold = await begun(harness, "base")
    assert (await resolved())["image"] == "base"
    await harness.ask("POST", f"/v1/builds/{build_id}/finish", {"state": "failed", "reason": "no"})
    await hold
    assert (await resolved())["image"] == "base"
    assert "no build that is ready" in (await resolved(":v2"))["message"]
    await harness.ask("POST", "/v1/teams", {"name": "blue"})
    snapshot_id = await built(harness, "base")
    assert (await resolved())["snapshot_id"] == snapshot_id
    assert (await resolved("&team=blue"))["image"] == "base", "it is nobody's own, and not public"


@with_harness
async def test_a_sandbox_becomes_a_template_or_leaves_no_snapshot(harness: Harness) -> None:
    one = f"/v1/sandboxes/{(await harness.create())['sandbox_id']}/template"
    resolved = (await harness.ask("POST", one, {"name": "kept"})).json
    (row,) = harness.system.inventory.snapshots()
    assert (row.snapshot_id, row.build_id) == (resolved["snapshot_id"], resolved["build_id"])
    for wrong, status in (({"name": "No"}, 400), ({"name": "kept", "team": "reef"}, 404)):
        assert (await harness.ask("POST", one, wrong)).status == status
        assert len(harness.system.inventory.snapshots()) == 1, "it was looked at first"
    with patch.object(TemplateRows, "put", AsyncMock(side_effect=NoSpaceError("full"))):
        assert (await harness.ask("POST", one, {"name": "more"})).status == 507
    await harness.until(lambda: len(harness.system.inventory.snapshots()) == 1)


@with_harness
async def test_a_snapshot_that_was_to_be_a_template_goes_with_the_supervisor_that_took_it(
    harness: Harness,
) -> None:
    one = f"/v1/sandboxes/{(await harness.create())['sandbox_id']}/template"
    putting = asyncio.Event()

    async def put(*_: object) -> None:
        putting.set()
        await asyncio.Event().wait()

    with patch.object(TemplateRows, "put", put):
        asked = asyncio.create_task(harness.ask("POST", one, {"name": "kept"}))
        await putting.wait()
        harness.system.templates._look.set()
        await asyncio.sleep(0.1)
        assert len(harness.system.inventory.snapshots()) == 1, "it is not needless yet"
        await harness.crash()
        await asyncio.gather(asked, return_exceptions=True)
    await harness.start()
    assert harness.system.inventory.snapshots() == []


@with_harness
async def test_a_misspelt_template_is_told_with_those_that_may_be_meant(harness: Harness) -> None:
    await built(harness, "interpreter")
    missing = await harness.ask("POST", "/v1/sandboxes", {"template": "interperter"})
    assert missing.json["hint"] == "did you mean `interpreter`? `atoll template ls` lists them"
    missing = await harness.ask("POST", "/v1/sandboxes", {"image": "interpreter"})
    assert missing.json["code"] == "image_not_found"
    assert missing.json["hint"] == "did you mean the template `interpreter`? use base"
