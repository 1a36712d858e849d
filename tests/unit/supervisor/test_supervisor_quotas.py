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
from tests.unit.supervisor.harness import Answer, Harness, with_harness, with_harness_of


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
    quotas = Quotas(ttl_s=60)
    check_lease("reef", quotas, Lifecycle(ttl_s=60))
    check_lease("reef", Quotas(), Lifecycle())
    for lifecycle in (Lifecycle(), Lifecycle(ttl_s=61), Lifecycle(ttl_s=1, wake_ttl_s=61)):
        with pytest.raises(QuotaError):
            check_lease("reef", quotas, lifecycle)


@pytest.mark.parametrize(("most_s", "length"), [(86400, "24h"), (5400, "90m"), (90, "90s"), (0.5, "0.5s")])
def test_who_gave_no_lease_is_told_that_one_is_needed_and_how_it_is_given(most_s: float, length: str) -> None:
    with pytest.raises(QuotaError) as caught:
        check_lease("reef", Quotas(ttl_s=most_s), Lifecycle())
    assert caught.value.message == f"sandboxes of team 'reef' need a lease of at most {most_s:g} seconds"
    hint = f"give one of {most_s:g} seconds or less: "
    assert caught.value.hint_for("cli") == f"{hint}`--lease {length}`"
    assert caught.value.hint == f"{hint}`lifecycle=Lifecycle(ttl_s=…)`"


async def make_team(harness: Harness, **quotas: object) -> None:
    answer = await harness.ask("POST", "/v1/teams", {"name": "reef", "quotas": quotas})
    assert answer.status == 200, answer.body


async def use_now(harness: Harness) -> Any:
    answer = await harness.ask("GET", "/v1/teams/reef/use")
    assert answer.status == 200, answer.body
    return answer.json


async def act(harness: Harness, sandbox: Any, what: str, body: object = None) -> Answer:
    return await harness.ask("POST", f"/v1/sandboxes/{sandbox['sandbox_id']}/{what}", body)


def statuses(answers: list[Answer]) -> dict[int, int]:
    found = [answer.status for answer in answers]
    return {status: found.count(status) for status in found}


async def many(harness: Harness) -> None:
    await make_team(harness, running=5)
    await harness.create()
    asked = [harness.ask("POST", "/v1/sandboxes", {"team": "reef"}) for _ in range(30)]
    answers = list(await asyncio.gather(*asked))
    assert statuses(answers) == {200: 5, 429: 25}
    assert {answer.json["code"] for answer in answers if answer.status == 429} == {"quota"}
    assert len(harness.system.inventory.all()) == 6
    assert (await use_now(harness))["running"] == 5
    made = next(answer.json for answer in answers if answer.status == 200)
    await harness.ask("DELETE", f"/v1/sandboxes/{made['sandbox_id']}")
    await harness.create(team="reef")
    assert (await harness.ask("POST", "/v1/sandboxes", {"team": "reef"})).status == 429


@with_harness
async def test_of_thirty_creates_at_once_as_many_pass_as_may(harness: Harness) -> None:
    await many(harness)
    assert len(list(harness.home.sandboxes.iterdir())) == len(harness.system.inventory.all()) == 6


@with_harness_of(Settings(pool_size=3))
async def test_of_thirty_creates_at_once_as_many_pass_as_may_with_warm_machines(harness: Harness) -> None:
    await harness.system.images.ensure("base", lambda _: None)
    await many(harness)


@with_harness
async def test_a_failed_create_gives_its_place_back(harness: Harness) -> None:
    await make_team(harness, running=1)
    harness.agents.fail_after = 0
    assert (await harness.ask("POST", "/v1/sandboxes", {"team": "reef"})).status == 500
    harness.agents.fail_after = None
    await harness.create(team="reef")


@with_harness
async def test_copies_count_all_or_none(harness: Harness) -> None:
    await make_team(harness, running=4)
    made = await harness.create(team="reef")
    answers = await asyncio.gather(*(act(harness, made, "fork", {"count": 3}) for _ in range(2)))
    assert statuses(list(answers)) == {200: 1, 429: 1}
    assert (await use_now(harness))["running"] == 4
    assert (await act(harness, made, "fork", {"count": 1})).status == 429


@with_harness
async def test_a_sleeping_one_wakes_only_into_a_free_place(harness: Harness) -> None:
    await make_team(harness, running=1)
    first = await harness.create(team="reef")
    assert (await act(harness, first, "suspend")).status == 200
    second = await harness.create(team="reef")
    assert (await act(harness, first, "wake")).json["code"] == "quota"
    assert (await act(harness, first, "resume")).json["code"] == "quota"
    assert harness.system.inventory.sandbox(first["sandbox_id"]).row.state == "suspended"
    await harness.ask("DELETE", f"/v1/sandboxes/{second['sandbox_id']}")
    assert (await act(harness, first, "wake")).status == 200
    assert (await act(harness, first, "wake")).status == 200


@with_harness
async def test_a_crashed_one_needs_a_place_too(harness: Harness) -> None:
    await make_team(harness, running=1)
    first = await harness.create(team="reef")
    await harness.machine_of(first["sandbox_id"]).kill()
    await harness.until(lambda: harness.system.inventory.sandbox(first["sandbox_id"]).row.state == "crashed")
    await harness.create(team="reef")
    assert (await act(harness, first, "wake")).json["code"] == "quota"


@with_harness
async def test_sleeping_ones_count_but_stopping_the_supervisor_puts_all_to_sleep(harness: Harness) -> None:
    await make_team(harness, suspended=1)
    made = [await harness.create(team="reef") for _ in range(3)]
    answers = await asyncio.gather(*(act(harness, one, "suspend") for one in made[:2]))
    assert statuses(list(answers)) == {200: 1, 429: 1}
    told = (await harness.ask("POST", "/suspend-all")).json
    assert (len(told["suspended"]), told["failed"]) == (2, {})


@with_harness
async def test_processors_and_memory_are_those_of_all_that_run_together(harness: Harness) -> None:
    await make_team(harness, vcpus=2, memory_mib=1024)
    made = await harness.create(team="reef", limits={"vcpus": 1, "memory_mib": 512}, best_effort=True)
    for limits in ({"vcpus": 1.5, "memory_mib": 64}, {"vcpus": 0.5, "memory_mib": 513}, {"memory_mib": 64}):
        wanted = {"team": "reef", "limits": limits, "best_effort": True}
        assert (await harness.ask("POST", "/v1/sandboxes", wanted)).status == 429, limits
    more = {"limits": {"vcpus": 2.5}, "best_effort": True}
    assert (await act(harness, made, "limits", more)).status == 429
    assert harness.system.inventory.sandbox(made["sandbox_id"]).row.limits.vcpus == 1
    assert (await act(harness, made, "limits", {"limits": {"vcpus": 2}, "best_effort": True})).status == 200


@with_harness
async def test_one_that_counts_as_all_processors_is_not_given_more_than_its_team_may_have(
    harness: Harness,
) -> None:
    all_vcpus = os.cpu_count() or 1
    await make_team(harness, vcpus=all_vcpus)
    made = await harness.create(team="reef")
    more = {"limits": {"vcpus": all_vcpus + 1}, "best_effort": True}
    assert (await act(harness, made, "limits", more)).json["code"] == "quota"


@with_harness
async def test_a_team_that_has_used_up_its_disk_gets_no_more_and_can_make_room(harness: Harness) -> None:
    await make_team(harness, disk_mib=1)
    made = await harness.create(team="reef")
    harness.layers.changed_bytes = 2 << 20
    assert (await use_now(harness))["disk_bytes"] >= 2 << 20
    assert (await harness.ask("POST", "/v1/sandboxes", {"team": "reef"})).json["code"] == "quota"
    for what in ("snapshots", "fork", "suspend"):
        assert (await act(harness, made, what, {})).json["code"] == "quota", what
    await harness.system.suspend_all.run()
    assert (await act(harness, made, "wake")).status == 200  # or nobody could tidy up inside
    await harness.ask("DELETE", f"/v1/sandboxes/{made['sandbox_id']}")
    assert (await use_now(harness))["disk_bytes"] == 0
    await harness.create(team="reef")


@with_harness
async def test_who_is_of_no_team_has_no_quotas_and_an_unknown_team_is_none(harness: Harness) -> None:
    await make_team(harness, running=0)
    await harness.create()
    assert (await harness.ask("POST", "/v1/sandboxes", {"team": "reef"})).status == 429
    assert (await harness.ask("POST", "/v1/sandboxes", {"team": "other"})).json["code"] == "team_not_found"


@with_harness
async def test_volumes_count_as_disk_and_keep_their_team(harness: Harness) -> None:
    await make_team(harness, disk_mib=1)
    made = (await harness.ask("POST", "/v1/volumes", {"name": "data", "team": "reef"})).json
    (harness.home.volumes / made["volume_id"] / "data" / "big").write_bytes(b"x" * (2 << 20))
    assert (await harness.ask("POST", "/v1/sandboxes", {"team": "reef"})).json["code"] == "quota"
    assert "volume data" in (await harness.ask("DELETE", "/v1/teams/reef")).json["message"]
    assert (await harness.ask("POST", "/v1/volumes", {"name": "data", "team": "none"})).status == 404


@with_harness
async def test_what_somebody_else_s_snapshot_brings_costs_a_team_nothing(harness: Harness) -> None:
    await make_team(harness)
    original = await harness.create()
    snapshot = (await act(harness, original, "snapshots", {})).json
    made = await harness.create(team="reef", from_snapshot=snapshot["snapshot_id"])
    assert (await use_now(harness))["disk_bytes"] == harness.layers.changed_bytes
    own = (await act(harness, made, "snapshots", {})).json
    used = harness.layers.changed_bytes + harness.layers.size_bytes("") + own["memory_bytes"]
    assert (await use_now(harness))["disk_bytes"] == used


@with_harness
async def test_images_that_a_team_had_pulled_count_to_its_disk_each_layer_once(harness: Harness) -> None:
    await make_team(harness)
    harness.images.pull_for("reef", "sha256-one", "shared", "one")
    harness.images.pull_for("reef", "sha256-two", "shared", "two")
    harness.images.pull_for("other", "sha256-three", "three")
    used = (await use_now(harness))["disk_bytes"]
    assert 3 << 20 <= used < 4 << 20


@with_harness
async def test_a_team_gives_up_images_that_nothing_needs_before_it_is_refused_anything(
    harness: Harness,
) -> None:
    await make_team(harness, disk_mib=3)
    for name in ("one", "two", "new"):
        harness.images.pull_for("reef", f"sha256-{name}", "shared", name)
    used = await harness.create(image="sha256-one")
    await harness.system.images.have("sha256-new", lambda _: None)
    full = await harness.ask("POST", "/v1/images/base", {"team": "reef"})
    assert (full.json["code"], pulled(harness)) == ("quota", ["sha256-one", "sha256-new"])
    harness.boot_s += 61
    assert (await harness.ask("POST", "/v1/images/base", {"team": "reef"})).status == 200
    assert pulled(harness) == ["sha256-one"]
    harness.images.pull_for("reef", "sha256-big", "three", "four")
    await harness.ask("DELETE", f"/v1/sandboxes/{used['sandbox_id']}")
    await harness.system.images.have("sha256-big", lambda _: None)
    harness.boot_s += 61
    await harness.create(team="reef")
    assert pulled(harness) == ["sha256-big"]  # the one that was asked for longest ago has gone


@with_harness
async def test_an_image_that_needs_more_than_is_left_comes_when_others_have_gone(harness: Harness) -> None:
    await make_team(harness, disk_mib=4)
    harness.images.pull_for("reef", "sha256-one", "one")
    harness.images.pull_for("reef", "sha256-two", "two")
    harness.images.needs_bytes = int(2.5 * (1 << 20))
    assert (await harness.ask("POST", "/v1/images/base", {"team": "reef"})).status == 200
    assert len(pulled(harness)) == 1
    harness.images.needs_bytes = 5 << 20
    assert (await harness.ask("POST", "/v1/images/base", {"team": "reef"})).json["code"] == "quota"
    assert pulled(harness) == []


@with_harness
async def test_what_a_team_had_pulled_and_nothing_needs_goes_with_it(harness: Harness) -> None:
    await make_team(harness)
    harness.images.pull_for("reef", "sha256-one", "one")
    assert (await harness.ask("DELETE", "/v1/teams/reef")).status == 204
    assert pulled(harness) == []


def pulled(harness: Harness) -> list[str]:
    return [image.info.digest for image in harness.images.pulled["reef"]]
