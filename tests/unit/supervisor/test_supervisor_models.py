"""The models of a home, and the sandboxes that use them, in a supervisor on fakes."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from atoll.errors import (
    InvalidSpecError,
    KeyNotFoundError,
    NoSpaceError,
    SecretNotFoundError,
    UnsupportedError,
)
from atoll.network import Began, Billed, ModelRights, ModelUsage, Need, Returned
from atoll.supervisor.lifecycle.egress_control import EgressControl
from atoll.supervisor.lifecycle.model_billing import ModelBilling
from atoll.supervisor.lifecycle.package_registries import PackageRegistries
from atoll.supervisor.settings import Settings
from atoll.supervisor.state.counters import Counters
from atoll.supervisor.tenants.proxy_passwords import ProxyPasswords
from atoll.types import (
    Delegation,
    ModelAccess,
    ModelBudget,
    ModelPrice,
    ModelProvider,
    ModelSetup,
    Policy,
    Quotas,
)
from atoll.types.internal import MODEL_ENV
from tests.unit.supervisor.harness import Harness, with_harness, with_harness_of
from tests.unit.supervisor.test_supervisor_egress import WatchedLink, row

SETUP = ModelSetup(
    providers={"openai": ModelProvider(kind="openai", keys=("sk-1",))},
    aliases={"cheap": ("openai/gpt-5-mini", "openai/own")},
    teams={"reef": ModelAccess(allow=("cheap",), usd=3)},
    prices={"openai/own": ModelPrice(input=1, output=2)},
)
LIMITED = msgspec.structs.replace(SETUP, budget=ModelBudget(tokens=1000))
ENDPOINTS = (("openai", "api.openai.com", 443),)


async def offered(harness: Harness, setup: ModelSetup = SETUP) -> None:
    await harness.system.secrets.create("sk-1", "sk-value")
    await harness.system.models.set(setup)


async def refused(harness: Harness, **spec: object) -> str:
    answer = await harness.ask("POST", "/v1/sandboxes", spec)
    assert answer.status >= 400
    return f"{answer.json['code']}: {answer.json['message']}"


def budget_of(harness: Harness, made: Any) -> str:
    models = harness.system.inventory.sandbox(made["sandbox_id"]).row.models
    assert models is not None
    return models.budget


@with_harness
async def test_a_home_that_offers_nothing_gives_no_models(harness: Harness) -> None:
    assert await refused(harness, models={}) == "unsupported: this home offers no models"
    made = await harness.create()
    assert (made["models"], made["env"]) == (None, {})


@with_harness
async def test_a_sandbox_finds_its_models_and_its_copies_share_the_budget(harness: Harness) -> None:
    await offered(harness)
    made = await harness.create(models={"allow": ["cheap"], "usd": 5.0}, env={"OPENAI_API_KEY": "own"})
    assert made["models"] == {"allow": ["cheap"], "usd": 5.0}
    assert made["env"] == {**MODEL_ENV, "OPENAI_API_KEY": "own"}
    ref = f"/v1/sandboxes/{made['sandbox_id']}"
    (copy,) = (await harness.ask("POST", f"{ref}/fork", {"count": 1})).json
    assert (copy["models"], copy["env"]) == (made["models"], made["env"])
    assert budget_of(harness, copy) == budget_of(harness, made) == f"sandbox:{made['sandbox_id']}"
    (apart,) = (await harness.ask("POST", f"{ref}/fork", {"count": 1, "models": {"usd": 1.0}})).json
    assert budget_of(harness, apart) == f"sandbox:{apart['sandbox_id']}"
    snapshot = (await harness.ask("POST", f"{ref}/snapshots", {})).json
    later = await harness.create(from_snapshot=snapshot["snapshot_id"])
    assert budget_of(harness, later) == budget_of(harness, made)
    own = await harness.create(from_snapshot=snapshot["snapshot_id"], models={"usd": 1.0})
    assert budget_of(harness, own) == f"sandbox:{own['sandbox_id']}"
    assert own["env"]["OPENAI_API_KEY"] == "own"
    await harness.crash()
    await harness.start()
    told = harness.system.model_ledger.budget(budget_of(harness, made))
    assert told is not None
    assert told.usd == 5.0
    assert harness.system.models.setup == SETUP


@with_harness_of(Settings(pool_size=1))
async def test_the_budget_of_a_sandbox_of_a_warm_machine_has_its_name(harness: Harness) -> None:
    await offered(harness)
    await harness.create()
    await harness.until(lambda: harness.system.pool.ids())
    (ready,) = harness.system.pool.ids()
    made = await harness.create(models={"usd": 2.0})
    assert (made["sandbox_id"], budget_of(harness, made)) == (ready, f"sandbox:{ready}")
    told = harness.system.model_ledger.budget(f"sandbox:{ready}")
    assert told is not None
    assert told.usd == 2.0


@with_harness
async def test_another_team_gets_nothing_of_a_snapshots_budget(harness: Harness) -> None:
    await offered(harness)
    await harness.system.teams.create("reef", Quotas())
    made = await harness.create(models={})
    snapshot = (await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/snapshots", {})).json
    other = await harness.create(from_snapshot=snapshot["snapshot_id"], team="reef")
    assert other["models"] is None


@with_harness
async def test_a_copy_may_have_models_that_its_original_lacks(harness: Harness) -> None:
    await offered(harness)
    made = await harness.create(env={"A": "b"})
    ref = f"/v1/sandboxes/{made['sandbox_id']}"
    (copy,) = (await harness.ask("POST", f"{ref}/fork", {"count": 1, "models": {"allow": ["cheap"]}})).json
    assert (copy["models"], copy["env"]) == ({"allow": ["cheap"]}, {**MODEL_ENV, "A": "b"})
    answer = await harness.ask("POST", f"{ref}/fork", {"count": 1, "models": {"allow": ["none-such"]}})
    assert (answer.status, answer.json["code"]) == (400, "invalid_spec")


@with_harness
async def test_a_copy_of_an_unplugged_sandbox_has_no_models(harness: Harness) -> None:
    await offered(harness)
    ref = f"/v1/sandboxes/{(await harness.create(models={}))['sandbox_id']}"
    assert (await harness.ask("POST", f"{ref}/unplug", {})).status == 200
    (copy,) = (await harness.ask("POST", f"{ref}/fork", {"count": 1})).json
    assert copy["models"] is None


@with_harness
async def test_what_is_not_offered_or_not_for_the_team_is_refused(harness: Harness) -> None:
    await offered(harness)
    for team in ("reef", "sand"):
        await harness.system.teams.create(team, Quotas())
    assert "'openai/gpt-5' is not among the models" in await refused(
        harness, team="reef", models={"allow": ["openai/gpt-5"]}
    )
    assert "the team 'sand' may use no models" in await refused(harness, team="sand", models={})
    assert "'strong' is neither an alias nor" in await refused(harness, models={"allow": ["strong"]})
    assert "neither" in await refused(harness, models={"allow": ["other/gpt-5"]})
    assert (await refused(harness, models={"allow": []}, delegation={"scopes": []})).startswith("delegation:")
    for allow in (["*"], ["cheap"], ["c*"]):
        await harness.create(team="reef", models={"allow": allow})
    await harness.create(models={"allow": ["*/gpt-5", "*", "openai/anything"]})


@with_harness
async def test_clients_set_the_models_and_see_what_was_used(harness: Harness) -> None:
    await harness.system.secrets.create("sk-1", "sk-value")
    assert (await harness.ask("GET", "/v1/models")).json == {}
    wanted = json.loads(msgspec.json.encode(SETUP))
    assert (await harness.ask("PUT", "/v1/models", wanted)).json == wanted
    assert (await harness.ask("GET", "/v1/models")).json == wanted
    assert (await harness.ask("PUT", "/v1/models", {"aliases": {"a": []}})).status == 400
    made = await harness.create(name="work", models={"tokens": 9, "per": "total"})
    await harness.system.model_ledger.settle([bill(1, made["sandbox_id"])])
    told = (await harness.ask("GET", "/v1/models/usage?sandbox=work")).json
    assert [(use["model"], use["requests"], use["usd"]) for use in told["uses"]] == [("gpt-5-mini", 1, 7e-7)]
    assert [budget["tokens"] for budget in told["budgets"]] == [9]
    everything = (await harness.ask("GET", "/v1/models/usage?since=1970-01-01")).json
    assert [budget["budget"] for budget in everything["budgets"]] == ["home", "team:reef"]
    assert everything["uses"] == told["uses"]
    assert (await harness.ask("GET", "/v1/models/usage?team=reef")).json["uses"] == []
    assert (await harness.ask("GET", "/v1/models/usage?sandbox=gone")).json == {"uses": [], "budgets": []}
    assert (await harness.ask("GET", "/v1/models/usage?since=today")).status == 400
    stats = (await harness.ask("GET", "/v1/sandboxes/work/stats")).json
    assert stats["models"]["budget"] == f"sandbox:{made['sandbox_id']}"
    powers = (await harness.ask("GET", "/v1/sandboxes/work/powers")).json
    assert powers["models"] == ["It uses *.", "It and its copies spend at most 9 tokens in all."]
    prices = (await harness.ask("GET", "/v1/models/prices")).json
    assert prices["prices"][-1]["own"] or any(row["own"] for row in prices["prices"])


@with_harness
async def test_keys_have_to_be_there_and_may_go_to_the_provider(harness: Harness) -> None:
    models, secrets = harness.system.models, harness.system.secrets
    with pytest.raises(SecretNotFoundError):
        await models.set(SETUP)
    await secrets.create("sk-1", "value", hosts=["other.example"])
    with pytest.raises(InvalidSpecError, match="may not be sent to 'api.openai.com'"):
        await models.set(SETUP)
    assert models.setup == ModelSetup()
    await secrets.update("sk-1", hosts=["*.openai.com"])
    await models.set(SETUP)
    assert models.document()["providers"]["openai"]["keys"] == ["value"]
    changes: list[Any] = []
    models.follow(lambda: changes.append(models.document()["providers"]["openai"]["keys"]))
    await secrets.update("sk-1", value="newer")
    await secrets.create("other", "value")
    await secrets.update("sk-1", hosts=["other.example"])
    assert changes == [["newer"], []]


@with_harness
async def test_the_edge_gets_the_addresses_the_aliases_and_the_prices(harness: Harness) -> None:
    await offered(harness)
    document = harness.system.models.document()
    assert document["providers"] == {
        "openai": {"kind": "openai", "url": "https://api.openai.com/v1", "keys": ["sk-value"]}
    }
    assert document["aliases"] == {
        "cheap": [{"provider": "openai", "model": "gpt-5-mini"}, {"provider": "openai", "model": "own"}]
    }
    prices = document["prices"]["openai"]
    assert prices["own"] == {"input": 1000, "cache_read": 1000, "cache_write": 1000, "output": 2000}
    assert prices["gpt-5-mini"]["input"] == 250


def granted(harness: Harness, **more: object) -> tuple[Any, WatchedLink, EgressControl]:
    """A link of a sandbox with models, governed by a control of its own."""
    models = SimpleNamespace(access=ModelAccess(allow=("*",)), budget="sandbox:s1")
    one, link = row(**{"network": "none", "models": models, **more}), WatchedLink()
    egress = EgressControl(
        inventory=cast(Any, SimpleNamespace(sandboxes=list)),
        teams=harness.system.teams,
        secrets=harness.system.secrets,
        passwords=ProxyPasswords(harness.system.secrets.vault),
        models=harness.system.models,
        decisions=cast(Any, None),
        alarms=cast(Any, None),
        inspection=cast(Any, SimpleNamespace(models=SimpleNamespace(offer=lambda _: None))),
        relay=cast(Any, None),
        registries=PackageRegistries(dict),
        clock=lambda: 1000.0,
    )
    egress.govern(cast(Any, link), one)
    return one, link, egress


@with_harness
async def test_models_need_no_rule_and_reach_the_sandbox_when_they_change(harness: Harness) -> None:
    await offered(harness)
    _, link, _ = granted(harness)
    assert (link.policy, link.grants[-1].policy) == ("none", Policy())
    assert link.grants[-1].models == ModelRights(("*",), ("sandbox:s1",), ENDPOINTS)
    assert link.grants[-1].document()["models"] == {"allow": ("*",), "budgets": ("sandbox:s1",)}
    await harness.system.models.set(
        ModelSetup(providers=SETUP.providers, budget=ModelBudget(tokens=9, per="total"))
    )
    assert link.grants[-1].models == ModelRights(("*",), ("sandbox:s1", "home"), ENDPOINTS)
    await harness.system.models.set(ModelSetup())
    assert link.grants[-1].models is None
    assert "models" not in link.grants[-1].document()


@with_harness
async def test_a_team_narrows_what_its_sandboxes_may_use_and_has_a_budget(harness: Harness) -> None:
    await offered(harness)
    for team in ("reef", "sand"):
        await harness.system.teams.create(team, Quotas())
    _, link, _ = granted(harness, team="reef")
    assert link.grants[-1].models == ModelRights(("cheap",), ("sandbox:s1", "team:reef"), ENDPOINTS)
    _, link, _ = granted(harness, team="sand")
    assert link.grants[-1].models is None


@with_harness
async def test_a_sandbox_spends_the_budgets_of_its_delegations_and_of_their_keys(harness: Harness) -> None:
    await offered(harness)
    await harness.system.teams.create("reef", Quotas())
    keys = [(await harness.system.keys.create("reef", name, None)).info.key_id for name in ("one", "two")]
    setup = msgspec.structs.replace(SETUP, keys={keys[0]: ModelBudget(usd=2), keys[1]: ModelBudget()})
    await harness.system.models.set(setup)
    by_key = [{"atoll-caller": f"key {key} of reef"} for key in keys]

    async def ask(path: str, body: object, caller: int) -> Any:
        answer = await harness.ask("POST", path, body, by_key[caller])
        assert answer.status == 200, answer.body
        return answer.json

    wish = {"team": "reef", "models": {}, "name": "first", "delegation": {"models": {"tokens": 90}}}
    made = await ask("/v1/sandboxes", wish, 0)
    (copy,) = await ask("/v1/sandboxes/first/fork", {"delegation": {"models": {"tokens": 30}}}, 1)
    (last,) = await ask(f"/v1/sandboxes/{copy['sandbox_id']}/fork", {}, 1)
    bounds = [f"key:{keys[0]}", *(f"delegation:{one['delegation']['uid']}" for one in (made, copy))]

    def budgets(of: Any) -> tuple[str, ...]:
        rights = harness.system.models.rights_of(harness.system.inventory.sandbox(of["sandbox_id"]).row)
        assert rights is not None
        return rights.budgets

    own = f"sandbox:{made['sandbox_id']}"
    assert budgets(made) == (own, *bounds[:2], "team:reef")
    assert budgets(last) == budgets(copy) == (own, *bounds, "team:reef")
    assert last["delegation"]["models"] == {"tokens": 30}
    await harness.ask("DELETE", "/v1/sandboxes/first")
    await harness.crash()
    await harness.start()
    told = (await harness.ask("GET", "/v1/models/usage?team=reef")).json["budgets"]
    assert [(one["budget"], one.get("tokens"), one.get("usd")) for one in told] == [
        ("team:reef", None, 3.0),
        (bounds[0], None, 2.0),
        (bounds[1], 90, None),
        (bounds[2], 30, None),
    ]
    told = (await harness.ask("GET", f"/v1/models/usage?sandbox={last['sandbox_id']}")).json["budgets"]
    assert [one["budget"] for one in told] == [own, *bounds]
    for one in (copy, last):
        await harness.ask("DELETE", f"/v1/sandboxes/{one['sandbox_id']}")
    await harness.crash()
    await harness.start()
    assert [harness.system.model_ledger.budget(name) is None for name in bounds] == [False, True, True]


@with_harness
async def test_a_budget_is_for_a_key_that_there_is(harness: Harness) -> None:
    with pytest.raises(KeyNotFoundError, match="a budget is for 'key-1f'"):
        await offered(harness, msgspec.structs.replace(SETUP, keys={"key-1f": ModelBudget(usd=1)}))
    assert harness.system.models.setup == ModelSetup()


@with_harness
async def test_without_the_network_scope_there_are_no_models(harness: Harness) -> None:
    await offered(harness)
    narrow = Delegation(uid="dlg-1", issuer="i", created_at=0, scopes=("fork",))
    ended = Delegation(uid="dlg-2", issuer="i", created_at=0, expires_at=1)
    for delegation in (narrow, ended):
        _, link, _ = granted(harness, delegation=delegation)
        assert link.grants[-1].models is None


class Told:
    """The edge, as it is answered."""

    def __init__(self) -> None:
        self.allotted: list[tuple[int, str]] = []
        self.settled_ids: list[int] = []

    def allot(self, number: int, budget: str, given: object) -> None:
        self.allotted.append((number, budget))

    def settled(self, number: int) -> None:
        self.settled_ids.append(number)


def bill(number: int, sandbox: str, nanos: int = 700) -> Billed:
    return Billed(
        id=number,
        at=1000.0,
        sandbox=sandbox,
        asked="cheap",
        provider="openai",
        model="gpt-5-mini",
        usage=ModelUsage(input=2, output=1) if nanos else ModelUsage(),
        nanos=nanos,
        status=200,
        ending="whole",
        estimated=False,
        budgets=["home"],
    )


def billing(harness: Harness, told: Told, ledger: Any = None) -> ModelBilling:
    system = harness.system
    return ModelBilling(
        ledger=ledger or system.model_ledger,
        talk=cast(Any, told),
        inventory=system.inventory,
        acts=system.acts,
        counters=Counters(),
    )


def lines(harness: Harness, act: str) -> list[Any]:
    page = harness.system.acts.log.read(after=0, limit=1000, wanted=lambda entry: entry.act == act)
    return [entry.details for entry in page.entries]


@with_harness
async def test_the_edge_is_answered_and_what_it_cost_is_in_the_log(harness: Harness) -> None:
    await offered(harness, LIMITED)
    made, told = await harness.create(models={}), Told()
    part = billing(harness, told)
    running = asyncio.create_task(part.run())
    part.heard(Began(edge="e", budgets={}))
    part.heard(Need(id=1, budget="home", tokens=3, nanos=0))
    part.heard(bill(2, made["sandbox_id"]))
    part.heard(Returned(id=3, budget="home", tokens=1, nanos=0))
    await harness.until(lambda: told.settled_ids == [2, 3])
    assert told.allotted == [(1, "home")]
    (use,) = harness.system.model_ledger.uses()
    assert (use.sandbox_id, use.usd) == (made["sandbox_id"], 7e-7)
    await harness.until(lambda: lines(harness, "model.called"))
    (line,) = lines(harness, "model.called")
    assert (line["asked"], line["model"], line["output"], line["usd"], line["ending"]) == (
        "cheap",
        "gpt-5-mini",
        1,
        7e-7,
        "whole",
    )
    part.heard(Began(edge="another", budgets={}))
    await harness.until(lambda: lines(harness, "model.lost"))
    assert lines(harness, "model.lost")[0]["budget"] == "home"
    running.cancel()


@with_harness
async def test_a_budget_that_is_nearly_spent_raises_an_alert_once_for_each_mark(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    await harness.system.secrets.create("sk-1", "sk-value", team="reef")
    teams, home = {"reef": ModelAccess(usd=1e-6, per="total")}, ModelBudget(usd=2e-6, per="total")
    await offered(harness, msgspec.structs.replace(SETUP, teams=teams, budget=home))
    made = await harness.create(models={}, team="reef")
    part: Any = harness.system._model_billing
    part.heard(Began(edge="e", budgets={}))
    for number, nanos in enumerate((700, 150, 10, 90, 60), start=1):
        one = bill(number, made["sandbox_id"], nanos)
        part.heard(msgspec.structs.replace(one, budgets=["team:reef", "home", "gone"]))

    async def alerts() -> list[tuple[str | None, str]]:
        told = (await harness.ask("GET", "/v1/alerts")).json["alerts"]
        return [(one.get("team"), one["title"]) for one in told if one["rule"] == "budget"]

    await harness.until(lambda: len(lines(harness, "alert.budget")) == 3)
    text = "% of the budget team:reef for models are spent"
    assert await alerts() == [("reef", f"{mark} {text}") for mark in (80, 95, 100)]
    part.heard(msgspec.structs.replace(bill(6, made["sandbox_id"], 990), budgets=["home"]))
    await harness.until(lambda: len(lines(harness, "alert.budget")) == 4)
    assert (await alerts())[3] == (None, "100 % of the budget home for models are spent")


@with_harness
async def test_the_edge_learns_limits_that_change(harness: Harness) -> None:
    await offered(harness)
    told = Told()
    billing(harness, told).tell_limits(harness.system.models.budgets_of(None))
    assert told.allotted == [(0, "home"), (0, "team:reef")]


@with_harness
async def test_an_answer_does_not_go_to_an_edge_that_has_not_asked(harness: Harness) -> None:
    await offered(harness, LIMITED)
    told = Told()
    part = billing(harness, told)
    part.heard(Began(edge="e", budgets={}))
    part.heard(Need(id=1, budget="home", tokens=3, nanos=0))
    part.heard(Began(edge="another", budgets={}))
    part.heard(Need(id=1, budget="sandbox:x", tokens=3, nanos=0))
    running = asyncio.create_task(part.run())
    await harness.until(lambda: told.allotted)
    assert told.allotted == [(1, "sandbox:x")]
    home = harness.system.model_ledger.budget("home")
    assert home is not None
    assert home.spent_tokens >= 3  # nobody knows what became of it
    running.cancel()


@with_harness
async def test_an_edge_that_ends_gives_back_what_it_does_not_use(harness: Harness) -> None:
    await offered(harness, LIMITED)

    class Giving(Told):
        def give_back(self) -> bool:
            part.heard(Returned(id=2, budget="home", tokens=20, nanos=0))
            return True

    told = Giving()
    part = billing(harness, told)
    part.heard(Began(edge="e", budgets={}))
    part.heard(Need(id=1, budget="home", tokens=3, nanos=0))
    await part.finish()
    assert (told.settled_ids, harness.system.model_ledger.is_held) == ([2], False)
    part.heard(Need(id=3, budget="home", tokens=3, nanos=0))
    told.give_back = lambda: True  # type: ignore[method-assign] # an edge that hangs stops nobody
    await part.finish()
    assert harness.system.model_ledger.is_held


@with_harness
async def test_what_a_full_disk_does_not_take_is_tried_again(harness: Harness) -> None:
    told, tries = Told(), [0]

    class Failing:
        async def settle(self, messages: list[Any]) -> Any:
            tries[0] += 1
            if tries[0] == 1:
                raise NoSpaceError("no space is left")
            return await harness.system.model_ledger.settle(messages)

    part = billing(harness, told, Failing())
    part.heard(bill(1, "gone", nanos=0))
    running = asyncio.create_task(part.run())
    await harness.until(lambda: told.settled_ids == [1])
    assert tries == [2]
    running.cancel()


@with_harness
async def test_a_damaged_setup_leaves_everything_else_working(harness: Harness) -> None:
    await harness.aclose()
    harness.home.models.write_text('{"providers": 3}')
    await harness.start()
    assert harness.system.models.setup == ModelSetup()
    with pytest.raises(UnsupportedError):
        await harness.system.models.grant(ModelAccess(), "s1", None, None)
