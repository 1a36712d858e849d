"""A child of a delegation only ever has less."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.errors import DelegationError, DelegationExpiredError, InvalidSpecError
from atoll.policy import (
    allows,
    check_alive,
    check_network_scopes,
    check_scope,
    child_of,
    key_budgets,
    narrowed,
    own_budget,
)
from atoll.types import Delegation, DelegationSpec, Inject, ModelBudget, Policy, Rule
from atoll.types.internal import SCOPES

NOW_S = 1000.0
ROOT = Delegation(uid="dlg-root", issuer="user ada", created_at=1.0)
SPECS = st.builds(
    DelegationSpec,
    scopes=st.none() | st.lists(st.sampled_from(SCOPES)).map(tuple),
    expires_in_s=st.none() | st.floats(1, 100),
    on_behalf_of=st.none() | st.just("bo"),
)


def child(parent: Delegation, now_s: float = NOW_S, **wanted: Any) -> Delegation:
    return child_of(
        parent, DelegationSpec(**wanted), uid="dlg-child", issuer="key-1", audience="box", now_s=now_s
    )


@given(st.lists(st.tuples(SPECS, st.floats(0, 10)), max_size=8))
def test_a_chain_only_shrinks_and_refuses_exactly_what_is_more(
    steps: list[tuple[DelegationSpec, float]],
) -> None:
    parent, now_s = ROOT, NOW_S
    for number, (wanted, later_s) in enumerate(steps):
        now_s += later_s
        ends_at = parent.expires_at if wanted.expires_in_s is None else now_s + wanted.expires_in_s
        wider = not set(wanted.scopes or ()) <= set(parent.scopes)
        longer = parent.expires_at is not None and ends_at is not None and ends_at > parent.expires_at
        try:
            made = child_of(parent, wanted, uid=f"dlg-{number}", issuer="i", audience="a", now_s=now_s)
        except DelegationError as error:
            assert wider or longer or (parent.has_ended(now_s) and isinstance(error, DelegationExpiredError))
            continue
        assert not (wider or longer or parent.has_ended(now_s))
        assert made.parent_uid == parent.uid
        assert set(made.scopes) <= set(parent.scopes)
        assert list(made.scopes) == [scope for scope in SCOPES if scope in made.scopes]
        assert parent.expires_at is None or (made.expires_at or 1e99) <= parent.expires_at
        parent = made


def test_a_child_spends_the_budgets_of_all_above_it_and_its_own() -> None:
    first = child(ROOT, models=ModelBudget(usd=5))
    assert (first.models, first.budgets) == (ModelBudget(usd=5), ("key:key-1", "delegation:dlg-child"))
    assert own_budget(first) == "delegation:dlg-child"
    kept = msgspec.structs.replace(first, uid="dlg-first", budgets=("key:key-1", "delegation:dlg-first"))
    for wanted in (None, ModelBudget()):
        same = child(kept, models=wanted)
        assert (same.models, same.budgets, own_budget(same)) == (kept.models, kept.budgets, None)
    less = child(kept, models=ModelBudget(usd=2))
    assert less.budgets == (*kept.budgets, "delegation:dlg-child")
    assert child(kept, models=ModelBudget(usd=9, per="total")).models == ModelBudget(usd=9, per="total")
    assert child(kept, models=ModelBudget(tokens=9)).models == ModelBudget(tokens=9)


def test_a_child_cannot_have_a_larger_budget_and_a_chain_has_so_many() -> None:
    parent = child(ROOT, models=ModelBudget(usd=5, tokens=100))
    with pytest.raises(DelegationError, match="cannot give 6 dollars for models: it has 5"):
        child(parent, models=ModelBudget(usd=6))
    with pytest.raises(DelegationError, match="cannot give 1,000 tokens for models: it has 100"):
        child(parent, models=ModelBudget(tokens=1000))
    full = msgspec.structs.replace(ROOT, budgets=tuple(f"delegation:dlg-{number}" for number in range(16)))
    with pytest.raises(DelegationError, match="16 delegations above this one have budgets"):
        child(full, models=ModelBudget(usd=1))
    assert own_budget(child(full)) is None


def test_the_budget_of_a_key_is_for_no_user() -> None:
    assert key_budgets("key-1f") == ("key:key-1f",)
    assert key_budgets("user key-1f") == ()


def test_a_child_takes_over_what_is_not_asked_for() -> None:
    first = child(ROOT, on_behalf_of="Ada Lovelace", scopes=("fork", "network"), expires_in_s=60)
    assert (first.issuer, first.audience, first.created_at) == ("key-1", "box", NOW_S)
    assert (first.scopes, first.expires_at, first.on_behalf_of) == (("network", "fork"), 1060, "Ada Lovelace")
    second = child(first)
    assert (second.scopes, second.expires_at, second.on_behalf_of) == (
        ("network", "fork"),
        1060,
        "Ada Lovelace",
    )
    assert child(first, scopes=(), on_behalf_of="").scopes == ()
    assert not first.is_root and ROOT.is_root


def test_more_is_refused_with_what_there_is() -> None:
    parent = child(ROOT, scopes=("network",), expires_in_s=60)
    with pytest.raises(DelegationError, match="scope secrets or fork: it has network"):
        child(parent, scopes=("network", "secrets", "fork"))
    with pytest.raises(DelegationError, match="ends at 1970-01-01T00:17:40Z, before its child would"):
        child(parent, expires_in_s=61)
    with pytest.raises(DelegationExpiredError, match="cannot give a part of it away"):
        child(parent, now_s=1060.0)


def test_two_bounds_hold_together() -> None:
    one = child(ROOT, scopes=("network", "fork"))
    other = child(ROOT, scopes=("fork", "secrets"), expires_in_s=9)
    both = narrowed(one, other)
    assert (both.uid, both.scopes, both.expires_at) == (one.uid, ("fork",), 1009)
    assert narrowed(ROOT, ROOT) == ROOT


def test_a_scope_allows_until_the_end() -> None:
    parent = child(ROOT, scopes=("network",), expires_in_s=1)
    assert allows(parent, "network", NOW_S) and not allows(parent, "secrets", NOW_S)
    assert not allows(parent, "network", NOW_S + 1)
    assert allows(None, "network", NOW_S)
    check_alive(parent, NOW_S, "use it")
    check_alive(None, NOW_S, "use it")
    check_alive(ROOT, NOW_S, "use it")
    with pytest.raises(DelegationExpiredError) as raised:
        check_alive(parent, NOW_S + 1, "use it", "box")
    assert raised.value.sandbox_id == "box"


def test_policies_need_scopes() -> None:
    inject = Policy(rules=(Rule(hosts=("a.example",), inject=(Inject(secret="s"),)),))
    nothing, network = child(ROOT, scopes=()), child(ROOT, scopes=("network",))
    check_network_scopes(nothing, "none")
    check_network_scopes(ROOT, inject)
    check_network_scopes(None, inject)
    check_network_scopes(network, "internet")
    with pytest.raises(DelegationError, match="a network other than none needs the scope network"):
        check_network_scopes(nothing, "packages")
    with pytest.raises(DelegationError, match="puts a secret into requests needs the scope secrets"):
        check_network_scopes(network, inject)
    with pytest.raises(DelegationError, match="a volume needs"):
        check_scope(network, "volumes", "a volume")


@pytest.mark.parametrize(
    "wanted",
    [
        {"on_behalf_of": "x" * 201},
        {"on_behalf_of": "two\nlines"},
        {"on_behalf_of": "a\u202eb"},
        {"on_behalf_of": 7},
        {"scopes": "network"},
        {"scopes": ("root",)},
        {"expires_in_s": 0},
        {"expires_in_s": float("nan")},
        {"expires_in_s": 1e10},
        {"parent_uid": 7},
        {"models": 7},
    ],
)
def test_what_cannot_be_meant_is_refused(wanted: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpecError):
        DelegationSpec(**wanted)
