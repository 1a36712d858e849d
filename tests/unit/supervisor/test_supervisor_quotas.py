"""What a team may have, however many ask for it at once."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from atoll.errors import QuotaError
from atoll.supervisor.settings import Settings
from atoll.supervisor.tenants.quotas import check_growth, check_lease, use_of
from atoll.types import Lifecycle, Limits, Quotas, TeamUse
from tests.unit.supervisor.world import Answer, World, in_world, in_world_of


def test_who_has_no_limit_of_its_own_counts_as_the_whole_host() -> None:
    awake = {"a": Limits(vcpus=0.5, memory_mib=256), "b": Limits(memory_mib=1024)}
    assert use_of(awake, ["c"], vcpus=4.0) == TeamUse(running=2, suspended=1, vcpus=4.5, memory_mib=1280)


@pytest.mark.parametrize("name", ["running", "suspended", "vcpus", "memory_mib"])
def test_each_quota_holds_to_the_last_one_and_no_further(name: str) -> None:
    quotas = Quotas(**{name: 2})
    one, two, three = (TeamUse(**{name: count}) for count in (1, 2, 3))
    check_growth("reef", quotas, one, two)
    with pytest.raises(QuotaError, match="reef.* 3 .* 2"):
        check_growth("reef", quotas, two, three)


def test_what_was_more_before_the_quota_was_lowered_may_stay_and_shrink() -> None:
    check_growth("reef", Quotas(running=1), TeamUse(running=9), TeamUse(running=9))
    check_growth("reef", Quotas(running=1), TeamUse(running=9), TeamUse(running=8))


def test_ten_tenths_of_a_processor_are_one() -> None:
    awake = {str(number): Limits(vcpus=0.1) for number in range(10)}
    check_growth("reef", Quotas(vcpus=1.0), TeamUse(), use_of(awake, [], vcpus=2.0))


def test_a_team_whose_leases_end_has_no_sandbox_without_one() -> None:
    quotas = Quotas(timeout_s=60)
    check_lease("reef", quotas, Lifecycle(timeout_s=60))
    check_lease("reef", Quotas(), Lifecycle())
    for lifecycle in (Lifecycle(), Lifecycle(timeout_s=61), Lifecycle(timeout_s=1, wake_timeout_s=61)):
        with pytest.raises(QuotaError):
            check_lease("reef", quotas, lifecycle)


@pytest.mark.parametrize(("most_s", "length"), [(86400, "24h"), (5400, "90m"), (90, "90s"), (0.5, "0.5s")])
def test_who_gave_no_lease_is_told_that_one_is_needed_and_how_it_is_given(most_s: float, length: str) -> None:
    with pytest.raises(QuotaError) as caught:
        check_lease("reef", Quotas(timeout_s=most_s), Lifecycle())
    assert caught.value.message == f"sandboxes of team 'reef' need a lease, of at most {most_s:g} seconds"
    hint = str(caught.value.hint)
    assert f"--timeout {length}`" in hint
    assert f"Lifecycle(timeout_s={most_s:g})" in hint


async def make_team(world: World, **quotas: object) -> None:
    answer = await world.ask("POST", "/v1/teams", {"name": "reef", "quotas": quotas})
    assert answer.status == 200, answer.body


async def use_now(world: World) -> Any:
    answer = await world.ask("GET", "/v1/teams/reef/use")
    assert answer.status == 200, answer.body
    return answer.json


async def act(world: World, sandbox: Any, what: str, body: object = None) -> Answer:
    return await world.ask("POST", f"/v1/sandboxes/{sandbox['sandbox_id']}/{what}", body)


def statuses(answers: list[Answer]) -> dict[int, int]:
    found = [answer.status for answer in answers]
    return {status: found.count(status) for status in found}


async def many(world: World) -> None:
    await make_team(world, running=5)
    await world.create()
    asked = [world.ask("POST", "/v1/sandboxes", {"team": "reef"}) for _ in range(30)]
    answers = list(await asyncio.gather(*asked))
    assert statuses(answers) == {200: 5, 429: 25}
    assert {answer.json["code"] for answer in answers if answer.status == 429} == {"quota"}
    assert len(world.system.registry.all()) == 6
    assert (await use_now(world))["running"] == 5
    made = next(answer.json for answer in answers if answer.status == 200)
    await world.ask("DELETE", f"/v1/sandboxes/{made['sandbox_id']}")
    await world.create(team="reef")
    assert (await world.ask("POST", "/v1/sandboxes", {"team": "reef"})).status == 429


@in_world
async def test_of_thirty_creates_at_once_as_many_pass_as_may(world: World) -> None:
    await many(world)
    assert len(list(world.home.sandboxes.iterdir())) == len(world.system.registry.all()) == 6


@in_world_of(Settings(pool_size=3))
async def test_of_thirty_creates_at_once_as_many_pass_as_may_with_warm_machines(world: World) -> None:
    await world.system.images.ensure("base", lambda _: None)
    await many(world)


@in_world
async def test_a_failed_create_gives_its_place_back(world: World) -> None:
    await make_team(world, running=1)
    world.agents.fail_after = 0
    assert (await world.ask("POST", "/v1/sandboxes", {"team": "reef"})).status == 500
    world.agents.fail_after = None
    await world.create(team="reef")


@in_world
async def test_copies_count_all_or_none(world: World) -> None:
    await make_team(world, running=4)
    made = await world.create(team="reef")
    answers = await asyncio.gather(*(act(world, made, "fork", {"count": 3}) for _ in range(2)))
    assert statuses(list(answers)) == {200: 1, 429: 1}
    assert (await use_now(world))["running"] == 4
    assert (await act(world, made, "fork", {"count": 1})).status == 429


@in_world
async def test_a_sleeping_one_wakes_only_into_a_free_place(world: World) -> None:
    await make_team(world, running=1)
    first = await world.create(team="reef")
    assert (await act(world, first, "suspend")).status == 200
    second = await world.create(team="reef")
    assert (await act(world, first, "wake")).json["code"] == "quota"
    assert (await act(world, first, "resume")).json["code"] == "quota"
    assert world.system.registry.sandbox(first["sandbox_id"]).row.state == "suspended"
    await world.ask("DELETE", f"/v1/sandboxes/{second['sandbox_id']}")
    assert (await act(world, first, "wake")).status == 200
    assert (await act(world, first, "wake")).status == 200


@in_world
async def test_a_crashed_one_needs_a_place_too(world: World) -> None:
    await make_team(world, running=1)
    first = await world.create(team="reef")
    await world.machine_of(first["sandbox_id"]).kill()
    await world.until(lambda: world.system.registry.sandbox(first["sandbox_id"]).row.state == "crashed")
    await world.create(team="reef")
    assert (await act(world, first, "wake")).json["code"] == "quota"


@in_world
async def test_sleeping_ones_count_but_stopping_the_supervisor_puts_all_to_sleep(world: World) -> None:
    await make_team(world, suspended=1)
    made = [await world.create(team="reef") for _ in range(3)]
    answers = await asyncio.gather(*(act(world, one, "suspend") for one in made[:2]))
    assert statuses(list(answers)) == {200: 1, 429: 1}
    told = (await world.ask("POST", "/suspend-all")).json
    assert (len(told["suspended"]), told["failed"]) == (2, {})


@in_world
async def test_processors_and_memory_are_those_of_all_that_run_together(world: World) -> None:
    await make_team(world, vcpus=2, memory_mib=1024)
    made = await world.create(team="reef", limits={"vcpus": 1, "memory_mib": 512}, best_effort=True)
    for limits in ({"vcpus": 1.5, "memory_mib": 64}, {"vcpus": 0.5, "memory_mib": 513}, {"memory_mib": 64}):
        wanted = {"team": "reef", "limits": limits, "best_effort": True}
        assert (await world.ask("POST", "/v1/sandboxes", wanted)).status == 429, limits
    more = {"limits": {"vcpus": 2.5}, "best_effort": True}
    assert (await act(world, made, "limits", more)).status == 429
    assert world.system.registry.sandbox(made["sandbox_id"]).row.limits.vcpus == 1
    assert (await act(world, made, "limits", {"limits": {"vcpus": 2}, "best_effort": True})).status == 200


@in_world
async def test_one_that_counts_as_all_processors_is_not_given_more_than_its_team_may_have(
    world: World,
) -> None:
    all_vcpus = os.cpu_count() or 1
    await make_team(world, vcpus=all_vcpus)
    made = await world.create(team="reef")
    more = {"limits": {"vcpus": all_vcpus + 1}, "best_effort": True}
    assert (await act(world, made, "limits", more)).json["code"] == "quota"


@in_world
async def test_a_team_that_has_used_up_its_disk_gets_no_more_and_can_make_room(world: World) -> None:
    await make_team(world, disk_mib=1)
    made = await world.create(team="reef")
    world.layers.changed_bytes = 2 << 20
    assert (await use_now(world))["disk_bytes"] >= 2 << 20
    assert (await world.ask("POST", "/v1/sandboxes", {"team": "reef"})).json["code"] == "quota"
    for what in ("snapshots", "fork", "suspend"):
        assert (await act(world, made, what, {})).json["code"] == "quota", what
    await world.system.suspend_all.run()
    assert (await act(world, made, "wake")).status == 200  # or nobody could tidy up inside
    await world.ask("DELETE", f"/v1/sandboxes/{made['sandbox_id']}")
    assert (await use_now(world))["disk_bytes"] == 0
    await world.create(team="reef")


@in_world
async def test_who_is_of_no_team_has_no_quotas_and_an_unknown_team_is_none(world: World) -> None:
    await make_team(world, running=0)
    await world.create()
    assert (await world.ask("POST", "/v1/sandboxes", {"team": "reef"})).status == 429
    assert (await world.ask("POST", "/v1/sandboxes", {"team": "other"})).json["code"] == "team_not_found"


@in_world
async def test_volumes_count_as_disk_and_keep_their_team(world: World) -> None:
    await make_team(world, disk_mib=1)
    made = (await world.ask("POST", "/v1/volumes", {"name": "data", "team": "reef"})).json
    (world.home.volumes / made["volume_id"] / "data" / "big").write_bytes(b"x" * (2 << 20))
    assert (await world.ask("POST", "/v1/sandboxes", {"team": "reef"})).json["code"] == "quota"
    assert made["volume_id"] in (await world.ask("DELETE", "/v1/teams/reef")).json["message"]
    assert (await world.ask("POST", "/v1/volumes", {"name": "data", "team": "none"})).status == 404


@in_world
async def test_what_somebody_else_s_snapshot_brings_costs_a_team_nothing(world: World) -> None:
    await make_team(world)
    original = await world.create()
    snapshot = (await act(world, original, "snapshots", {})).json
    made = await world.create(team="reef", from_snapshot=snapshot["snapshot_id"])
    assert (await use_now(world))["disk_bytes"] == world.layers.changed_bytes
    own = (await act(world, made, "snapshots", {})).json
    used = world.layers.changed_bytes + world.layers.size_bytes("") + own["memory_bytes"]
    assert (await use_now(world))["disk_bytes"] == used


@in_world
async def test_images_that_a_team_had_pulled_count_to_its_disk_each_layer_once(world: World) -> None:
    await make_team(world)
    world.images.pull_for("reef", "sha256-one", "shared", "one")
    world.images.pull_for("reef", "sha256-two", "shared", "two")
    world.images.pull_for("other", "sha256-three", "three")
    used = (await use_now(world))["disk_bytes"]
    assert 3 << 20 <= used < 4 << 20


@in_world
async def test_a_team_gives_up_images_that_nothing_needs_before_it_is_refused_anything(world: World) -> None:
    await make_team(world, disk_mib=3)
    for name in ("one", "two", "new"):
        world.images.pull_for("reef", f"sha256-{name}", "shared", name)
    used = await world.create(image="sha256-one")
    await world.system.images.have("sha256-new", lambda _: None)
    full = await world.ask("POST", "/v1/images/base", {"team": "reef"})
    assert (full.json["code"], pulled(world)) == ("quota", ["sha256-one", "sha256-new"])
    world.boot_s += 61
    assert (await world.ask("POST", "/v1/images/base", {"team": "reef"})).status == 200
    assert pulled(world) == ["sha256-one"]
    world.images.pull_for("reef", "sha256-big", "three", "four")
    await world.ask("DELETE", f"/v1/sandboxes/{used['sandbox_id']}")
    await world.system.images.have("sha256-big", lambda _: None)
    world.boot_s += 61
    await world.create(team="reef")
    assert pulled(world) == ["sha256-big"]  # the one that was asked for longest ago has gone


@in_world
async def test_an_image_that_needs_more_than_is_left_comes_when_others_have_gone(world: World) -> None:
    await make_team(world, disk_mib=4)
    world.images.pull_for("reef", "sha256-one", "one")
    world.images.pull_for("reef", "sha256-two", "two")
    world.images.needs_bytes = int(2.5 * (1 << 20))
    assert (await world.ask("POST", "/v1/images/base", {"team": "reef"})).status == 200
    assert len(pulled(world)) == 1
    world.images.needs_bytes = 5 << 20
    assert (await world.ask("POST", "/v1/images/base", {"team": "reef"})).json["code"] == "quota"
    assert pulled(world) == []


@in_world
async def test_what_a_team_had_pulled_and_nothing_needs_goes_with_it(world: World) -> None:
    await make_team(world)
    world.images.pull_for("reef", "sha256-one", "one")
    assert (await world.ask("DELETE", "/v1/teams/reef")).status == 204
    assert pulled(world) == []


def pulled(world: World) -> list[str]:
    return [image.info.digest for image in world.images.pulled["reef"]]
