"""The metrics of a home, in a supervisor on fakes."""

from __future__ import annotations

from typing import Any

import msgspec

from atoll.network import ModelUsage
from atoll.supervisor.monitors.history import Past
from atoll.supervisor.state.counters import Counters
from atoll.types import Ask, EgressDecision, ModelBudget
from tests.unit.supervisor.harness import Harness, with_harness
from tests.unit.supervisor.test_supervisor_models import SETUP, bill, offered

GPT = {"gen_ai_provider_name": "openai", "gen_ai_request_model": "gpt-5-mini"}


async def measured(harness: Harness) -> dict[str, list[Any]]:
    """The labels, parts and values of each metric that has any."""
    families = (await harness.ask("GET", "/v1/metrics")).json
    return {
        family["name"]: [
            (each.get("labels", {}), *filter(None, [each.get("part")]), each["value"])
            for each in family["samples"]
        ]
        for family in families
        if family["samples"]
    }


@with_harness
async def test_a_home_tells_how_many_sandboxes_are_in_which_state(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    for number in range(2):
        await harness.create(name=f"work{number}", team="reef")
    await harness.create(name="own")
    await harness.ask("POST", "/v1/sandboxes/work0/suspend")
    sandboxes = [harness.system.inventory.sandbox(name) for name in ("work1", "own")]
    await harness.until(lambda: all(harness.system.history.of(each) for each in sandboxes))
    found = await measured(harness)
    assert found["atoll_sandboxes"] == [
        ({"state": "running", "team": ""}, 1),
        ({"state": "running", "team": "reef"}, 1),
        ({"state": "suspended", "team": "reef"}, 1),
    ]
    memory = {labels["team"]: value for labels, value in found["atoll_sandbox_memory_bytes"]}
    assert memory == {
        team: harness.system.history.of(each)[-1].memory_bytes or 0
        for team, each in (("reef", sandboxes[0]), ("", sandboxes[1]))
    }
    assert {labels["team"] for labels, _ in found["atoll_sandbox_cpu_seconds_total"]} == {"", "reef"}
    assert found["atoll_host_memory_available_bytes"][0][1] > 0
    assert found["atoll_audit_lines_total"] == [({}, harness.system.acts.log.sequence)]


@with_harness
async def test_decisions_asks_and_alerts_are_counted_by_team(harness: Harness) -> None:
    one = EgressDecision(at=1.0, action="deny", rule=None, host="a", port=443, scheme="https", count=30)
    passed = msgspec.structs.replace(one, observed=True, count=2)
    harness.system.decisions.add("s1", [one, passed], None, "reef")
    harness.system.decisions.add("s2", [msgspec.structs.replace(one, action="allow", count=1)])
    ask = Ask(
        ask_id="a" * 16,
        sandbox_id="s1",
        team="reef",
        kind="question",
        title="may I?",
        digest="d",
        at=1.0,
        deadline=9.0,
    )
    harness.system.asks.table.add(ask)
    found = await measured(harness)
    assert found["atoll_egress_decisions_total"] == [
        ({"team": "reef", "action": "deny"}, 30),
        ({"team": "reef", "action": "observed"}, 2),
        ({"team": "", "action": "allow"}, 1),
    ]
    assert found["atoll_asks_pending"] == [({"team": "reef"}, 1)]
    assert ({"rule": "refusals", "team": "reef"}, 1) in found["atoll_alerts_total"]


@with_harness
async def test_models_have_the_names_of_opentelemetry_and_budgets_their_limits(harness: Harness) -> None:
    await offered(harness, msgspec.structs.replace(SETUP, budget=ModelBudget(tokens=9)))
    usage = ModelUsage(input=4, cache_read=3, cache_write=2, output=5)
    part: Any = harness.system._model_billing
    made_up = msgspec.structs.replace(bill(3, "s1", nanos=0), model="made-up", status=404)
    for one in (bill(1, "s1"), msgspec.structs.replace(bill(2, "s1", nanos=300), usage=usage), made_up):
        part.heard(one)
    await harness.until(lambda: len(harness.system.metrics.counters.of("model_requests")) == 2)
    found = await measured(harness)
    assert found["gen_ai_client_token_usage"][:4] == [
        ({**GPT, "gen_ai_token_type": "input"}, "sum", 11),
        ({**GPT, "gen_ai_token_type": "input"}, "count", 2),
        *found["gen_ai_client_token_usage"][2:4],
    ]
    output = [each for each in found["gen_ai_client_token_usage"] if each[0]["gen_ai_token_type"] == "output"]
    assert output[:2] == [
        ({**GPT, "gen_ai_token_type": "output"}, "sum", 6),
        ({**GPT, "gen_ai_token_type": "output"}, "count", 2),
    ]
    other = {**GPT, "gen_ai_request_model": "other"}
    assert found["atoll_model_requests_total"] == [(GPT, 2), (other, 1)]
    assert found["atoll_model_cost_usd_total"] == [(GPT, 1e-6), (other, 0)]
    home, reef = {"budget": "home", "per": "day"}, {"budget": "team:reef", "per": "day"}
    assert found["atoll_model_budget_limit_tokens"] == [(home, 9)]
    assert found["atoll_model_budget_limit_usd"] == [(reef, 3.0)]
    assert [labels for labels, _ in found["atoll_model_budget_spent_usd"]] == [home, reef]


def test_what_a_guest_could_make_up_without_an_end_is_counted_together() -> None:
    counters = Counters()
    for number in range(502):
        counters.add("requests", "openai", f"model-{number}")
    counters.add("requests", "openai", "model-0")
    found = dict(counters.of("requests"))
    assert len(found) == 501
    assert (found["openai", "model-0"], found["other", "other"]) == (2, 2)
    assert counters.of("nothing") == []


def test_the_time_of_a_processor_is_counted_between_two_looks_at_one_machine() -> None:
    past, used_s = Past(), []
    for machine, cpu_s in (
        ("one", 5.0),
        ("one", 7.0),
        ("one", 6.5),
        ("one", None),
        ("two", 1.0),
        ("two", 1.5),
    ):
        past.cpu_percent(machine, cpu_s, 1.0, 10.0)
        used_s.append(past.used_s)
    assert used_s == [0.0, 2.0, 0.0, 0.0, 0.0, 0.5]
