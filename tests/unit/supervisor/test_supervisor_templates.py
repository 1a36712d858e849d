"""Templates and builds: what the supervisor keeps of them, and what it does when nobody goes on with one."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock, patch

from atoll.errors import NoSpaceError
from atoll.supervisor.idle import Keeper
from atoll.supervisor.storage.build_cache import STEPS_MOST, UNUSED_MOST_S
from atoll.supervisor.storage.template_registry import TemplateRegistry
from tests.unit.supervisor.world import World, in_world


async def begun(world: World, name: str, **more: object) -> tuple[str, asyncio.Task[Any]]:
    """A build that goes on, and the connection that holds it."""
    build = (await world.ask("POST", "/v1/templates", {"name": name, **more})).json
    hold = asyncio.create_task(world.ask("POST", f"/v1/builds/{build['build_id']}/begin"))
    await world.until(lambda: world.system.templates.rows.is_building(build["build_id"]))
    return build["build_id"], hold


async def kept(world: World, build_id: str, *keys: str) -> str:
    """A snapshot of a sandbox of a build, after steps of these keys."""
    sandbox = await world.create(attributes={"atoll.build": build_id})
    path = f"/v1/sandboxes/{sandbox['sandbox_id']}/snapshots"
    snapshot_id: str = (await world.ask("POST", path, {"build_id": build_id})).json["snapshot_id"]
    for key in keys:
        body = {"step_key": key, "snapshot_id": snapshot_id}
        assert (await world.ask("POST", f"/v1/builds/{build_id}/steps", body)).status == 204
    return snapshot_id


async def built(world: World, name: str, *keys: str, **more: object) -> str:
    """A template that is ready, of one snapshot."""
    build_id, hold = await begun(world, name, **more)
    snapshot_id = await kept(world, build_id, *keys)
    body = {"state": "ready", "snapshot_id": snapshot_id}
    assert (await world.ask("POST", f"/v1/builds/{build_id}/finish", body)).json["state"] == "ready"
    await hold
    return snapshot_id


async def states(world: World, name: str) -> list[str]:
    return [build["state"] for build in (await world.ask("GET", f"/v1/templates/{name}")).json["builds"]]


@in_world
async def test_a_build_whose_builder_goes_away_has_failed_and_leaves_nothing(world: World) -> None:
    build_id, hold = await begun(world, "one")
    await kept(world, build_id)
    hold.cancel()
    await world.until(lambda: not world.system.templates.rows.is_building(build_id))
    await world.until(lambda: not world.system.registry.all() and not world.system.registry.snapshots())
    assert await states(world, "one") == ["failed"]
    missing = await world.ask("GET", "/v1/resolved?ref=one")
    assert missing.json["message"] == "template 'one' has no build that is ready: the last one failed"
    late = await world.ask("POST", "/v1/sandboxes", {"attributes": {"atoll.build": build_id}})
    assert late.status == 409
    assert not world.system.registry.all()


@in_world
async def test_a_sandbox_that_was_still_being_made_when_its_build_ended_is_killed(world: World) -> None:
    build_id, hold = await begun(world, "one")
    create = world.system.creation.create

    async def slow(*arguments: Any) -> Any:
        made = await create(*arguments)
        hold.cancel()
        await world.until(lambda: not world.system.templates.rows.is_building(build_id))
        return made

    with patch.object(world.system.creation, "create", slow):
        late = await world.ask("POST", "/v1/sandboxes", {"attributes": {"atoll.build": build_id}})
    assert late.status == 409
    await world.until(lambda: not world.system.registry.all())


@in_world
async def test_a_build_does_not_outlive_its_supervisor_and_templates_do(world: World) -> None:
    snapshot_id = await built(world, "done")
    build_id, hold = await begun(world, "going")
    await kept(world, build_id)
    await world.crash()
    hold.cancel()
    for end in ("", "-wal", "-shm"):
        world.home.database.with_name(world.home.database.name + end).unlink(missing_ok=True)
    await world.start()
    assert await states(world, "going") == ["failed"]
    assert not world.system.registry.all()
    assert [row.snapshot_id for row in world.system.registry.snapshots()] == [snapshot_id]
    assert (await world.ask("GET", "/v1/resolved?ref=done")).json["snapshot_id"] == snapshot_id


@in_world
async def test_a_snapshot_goes_when_no_tag_step_or_sandbox_needs_it(world: World) -> None:
    first = await built(world, "web", "key")
    assert (await world.ask("DELETE", f"/v1/snapshots/{first}")).status == 409
    sandbox = await world.create(template="web")
    second = await built(world, "web")
    found = {row.snapshot_id for row in world.system.registry.snapshots()}
    assert found == {first, second}
    assert (await world.ask("DELETE", "/v1/steps")).status == 204
    assert {row.snapshot_id for row in world.system.registry.snapshots()} == {first, second}
    await world.ask("DELETE", f"/v1/sandboxes/{sandbox['sandbox_id']}")
    await world.system.templates.sweep()
    assert {row.snapshot_id for row in world.system.registry.snapshots()} == {second}
    assert (await world.ask("DELETE", "/v1/templates/web")).status == 204
    assert not world.system.registry.snapshots()


@in_world
async def test_the_deepest_step_that_is_there_is_found_and_old_ones_go(world: World) -> None:
    await built(world, "web", "a", "b")
    build_id, hold = await begun(world, "other")

    async def asked(*keys: str) -> str:
        answer = await world.ask("POST", f"/v1/builds/{build_id}/cached", {"keys": keys})
        key: str = answer.json["step_key"]
        return key

    assert [await asked("c", "b", "a"), await asked("c"), await asked()] == ["b", "", ""]
    for index in range(STEPS_MOST):
        await world.system.templates.steps.add(f"more {index}", "nothing")
        assert await asked("b") == "b"
    assert await asked("a") == ""
    assert await asked("more 5") == "", "its snapshot is gone"
    hold.cancel()


@in_world
async def test_names_are_those_of_a_team_and_public_ones_of_nobody_are_for_all(world: World) -> None:
    for team in ("red", "blue"):
        await world.ask("POST", "/v1/teams", {"name": team})
    own = await built(world, "web", team=None)
    theirs = await built(world, "web", team="red")

    async def resolved(ref: str, team: str) -> Any:
        answer = await world.ask("GET", f"/v1/resolved?ref={ref}&team={team}")
        return answer.json["snapshot_id"] if answer.status == 200 else answer.json["message"]

    assert await resolved("web", "red") == theirs
    assert await resolved("web", "blue") == "template 'web' not found"
    assert await resolved("red/web", "blue") == "template 'red/web' not found"
    assert (await world.ask("POST", "/v1/templates/web/publish", {"public": True})).status == 200
    assert await resolved("web", "blue") == own
    assert await resolved("web", "red") == theirs
    assert await resolved("web:v9", "red") == "tag 'v9' does not exist for template 'web'"
    assert (
        (await world.ask("GET", "/v1/resolved?ref=web:v9"))
        .json["hint"]
        .endswith("a tag that it has: default")
    )
    assert (await world.ask("DELETE", "/v1/templates/web?team=blue")).status == 404
    assert (await world.ask("GET", "/v1/resolved?ref=base&team=blue")).json["image"] == "base"


@in_world
async def test_a_team_builds_no_more_at_once_than_its_quota(world: World) -> None:
    await world.ask("POST", "/v1/teams", {"name": "red", "quotas": {"builds": 1, "timeout_s": 60}})
    build_id, hold = await begun(world, "one", team="red")
    sandbox = await world.create(attributes={"atoll.build": build_id}, team="red")
    assert sandbox["lifecycle"]["timeout_s"] == 60
    other = (await world.ask("POST", "/v1/templates", {"name": "two", "team": "red"})).json
    assert (await world.ask("POST", f"/v1/builds/{other['build_id']}/begin")).status == 429
    assert (await world.ask("DELETE", "/v1/teams/red")).status == 409
    await world.ask("POST", f"/v1/builds/{build_id}/finish", {"state": "cancelled"})
    await hold
    hold = asyncio.create_task(world.ask("POST", f"/v1/builds/{other['build_id']}/begin"))
    await world.until(lambda: world.system.templates.rows.is_building(other["build_id"]))
    hold.cancel()


@in_world
async def test_a_build_that_is_ready_has_its_tags_however_many_builds_were_asked_for_meanwhile(
    world: World,
) -> None:
    build_id, hold = await begun(world, "one")
    snapshot_id = await kept(world, build_id)
    for _ in range(40):
        await world.ask("POST", "/v1/templates", {"name": "one"})
    body = {"state": "ready", "snapshot_id": snapshot_id}
    assert (await world.ask("POST", f"/v1/builds/{build_id}/finish", body)).json["state"] == "ready"
    await hold
    assert (await world.ask("GET", "/v1/resolved?ref=one")).json["snapshot_id"] == snapshot_id


@in_world
async def test_a_template_is_built_again_however_many_of_its_builds_have_tags(world: World) -> None:
    for number in range(35):
        await built(world, f"one:{number}")
    assert await states(world, "one") == ["ready"] * 35
    tags = [f"more{number}" for number in range(30)]
    refused = await world.ask("POST", "/v1/templates", {"name": "one", "tags": tags})
    assert (refused.json["code"], "64 tags at most" in refused.json["message"]) == ("invalid_spec", True)


@in_world
async def test_a_supervisor_starts_on_a_full_disk_in_the_middle_of_a_build(world: World) -> None:
    build_id, hold = await begun(world, "one")
    await kept(world, build_id)
    await world.crash()
    hold.cancel()
    with patch.object(TemplateRegistry, "put", AsyncMock(side_effect=NoSpaceError("full"))):
        await world.start()
    assert await states(world, "one") == ["failed"]
    assert not world.system.registry.all()
    assert not world.system.registry.snapshots()


@in_world
async def test_a_step_that_nobody_used_for_a_month_goes_with_its_snapshot(world: World) -> None:
    snapshot_id = await built(world, "one", "key")
    await world.ask("DELETE", "/v1/templates/one")
    other = await built(world, "two", "other")
    steps = world.system.templates.steps
    await steps.add("key", other)
    world.now_s += UNUSED_MOST_S / 2
    assert await steps.first(["key"])
    world.now_s += UNUSED_MOST_S * 0.75
    await steps.tidy()
    assert steps.has(other)
    assert await steps.first(["other"]) is None
    assert snapshot_id not in {row.snapshot_id for row in world.system.registry.snapshots()}


@in_world
async def test_a_build_keeps_the_supervisor_awake_before_it_has_a_sandbox(world: World) -> None:
    build_id, hold = await begun(world, "one")
    world.system.keeper = Keeper(0.0, world.system._look)
    assert not world.system.keeper.may_leave()
    await world.ask("POST", f"/v1/builds/{build_id}/finish", {"state": "cancelled"})
    await hold
    await world.until(world.system.keeper.may_leave)


@in_world
async def test_a_deleted_template_leaves_no_steps_of_builds_that_it_had_forgotten(world: World) -> None:
    await built(world, "one", "key")
    await built(world, "one", "other")
    for _ in range(40):
        await world.ask("POST", "/v1/templates", {"name": "one"})
    await world.ask("DELETE", "/v1/templates/one")
    await world.until(lambda: not world.system.registry.snapshots())


@in_world
async def test_the_name_of_the_default_image_is_the_image_until_a_build_of_it_is_ready(world: World) -> None:
    async def resolved(more: str = "") -> Any:
        return (await world.ask("GET", f"/v1/resolved?ref=base{more}")).json

    build_id, hold = await begun(world, "base")
    assert (await resolved())["image"] == "base"
    await world.ask("POST", f"/v1/builds/{build_id}/finish", {"state": "failed", "reason": "no"})
    await hold
    assert (await resolved())["image"] == "base"
    assert "no build that is ready" in (await resolved(":v2"))["message"]
    await world.ask("POST", "/v1/teams", {"name": "blue"})
    snapshot_id = await built(world, "base")
    assert (await resolved())["snapshot_id"] == snapshot_id
    assert (await resolved("&team=blue"))["image"] == "base", "it is nobody's own, and not public"


@in_world
async def test_a_sandbox_becomes_a_template_or_leaves_no_snapshot(world: World) -> None:
    one = f"/v1/sandboxes/{(await world.create())['sandbox_id']}/template"
    resolved = (await world.ask("POST", one, {"name": "kept"})).json
    (row,) = world.system.registry.snapshots()
    assert (row.snapshot_id, row.build_id) == (resolved["snapshot_id"], resolved["build_id"])
    for wrong, status in (({"name": "No"}, 400), ({"name": "kept", "team": "reef"}, 404)):
        assert (await world.ask("POST", one, wrong)).status == status
        assert len(world.system.registry.snapshots()) == 1, "it was looked at first"
    with patch.object(TemplateRegistry, "put", AsyncMock(side_effect=NoSpaceError("full"))):
        assert (await world.ask("POST", one, {"name": "more"})).status == 507
    await world.until(lambda: len(world.system.registry.snapshots()) == 1)


@in_world
async def test_a_snapshot_that_was_to_be_a_template_goes_with_the_supervisor_that_took_it(
    world: World,
) -> None:
    one = f"/v1/sandboxes/{(await world.create())['sandbox_id']}/template"
    putting = asyncio.Event()

    async def put(*_: object) -> None:
        putting.set()
        await asyncio.Event().wait()

    with patch.object(TemplateRegistry, "put", put):
        asked = asyncio.create_task(world.ask("POST", one, {"name": "kept"}))
        await putting.wait()
        world.system.templates._look.set()
        await asyncio.sleep(0.1)
        assert len(world.system.registry.snapshots()) == 1, "it is not needless yet"
        await world.crash()
        await asyncio.gather(asked, return_exceptions=True)
    await world.start()
    assert world.system.registry.snapshots() == []
