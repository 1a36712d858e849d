from __future__ import annotations

from atoll.cli.delegation_options import delegation, delegation_shown
from atoll.types import Delegation, DelegationSpec, ModelBudget

NOTHING = {
    "on_behalf_of": None,
    "scopes": (),
    "expires_s": None,
    "delegation_usd": None,
    "delegation_tokens": None,
    "delegation_per": "day",
}


def test_without_an_option_there_is_no_delegation_and_with_one_all_that_it_names() -> None:
    assert delegation(NOTHING) is None
    assert delegation({**NOTHING, "delegation_per": "total"}) is None
    assert delegation({**NOTHING, "scopes": ("none",)}) == DelegationSpec(scopes=())
    asked = delegation({**NOTHING, "delegation_usd": 5.0, "delegation_per": "total"})
    assert asked == DelegationSpec(models=ModelBudget(usd=5.0, per="total"))
    assert delegation({**NOTHING, "delegation_tokens": 7}) == DelegationSpec(models=ModelBudget(tokens=7))


def test_a_delegation_says_what_it_may_spend() -> None:
    one = Delegation(uid="dlg-1", issuer="key-1f", scopes=("fork",), created_at=0)
    assert delegation_shown(one) == "dlg-1 by key-1f: fork"
    bounded = Delegation(uid="dlg-2", issuer="key-1f", created_at=0, scopes=(), models=ModelBudget(usd=5))
    assert delegation_shown(bounded) == "dlg-2 by key-1f: no scopes, $5.00 a day for models"
