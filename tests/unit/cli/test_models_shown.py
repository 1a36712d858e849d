from __future__ import annotations

import pytest

from atoll.cli.model_options import budget_shown, budget_use_shown, dollars, model_access
from atoll.errors import InvalidSpecError
from atoll.types import ModelAccess, ModelBudget, ModelBudgetUse

NOTHING = {"models": (), "model_usd": None, "model_tokens": None, "model_per": "day"}


def test_without_an_option_there_are_no_models_and_with_one_all_that_it_names() -> None:
    assert model_access(NOTHING) is None
    assert model_access({**NOTHING, "model_usd": 5.0}) == ModelAccess(usd=5.0)
    asked = model_access({**NOTHING, "models": ("cheap",), "model_per": "total"})
    assert asked == ModelAccess(allow=("cheap",), per="total")
    with pytest.raises(InvalidSpecError, match="usd is -1"):
        model_access({**NOTHING, "model_usd": -1.0})


def test_amounts_have_as_many_digits_as_it_takes_to_see_them() -> None:
    assert [dollars(usd) for usd in (0, 0.0000207, 12.5, 12345.678)] == [
        "$0.00",
        "$0.000021",
        "$12.50",
        "$12,345.68",
    ]


def test_a_budget_says_its_limits_and_how_far_it_is_used() -> None:
    assert budget_shown(ModelBudget()) == "no limit"
    assert budget_shown(ModelBudget(usd=5, tokens=1000)) == "$5.00 and 1,000 tokens a day"
    assert budget_shown(ModelBudget(tokens=7, per="total")) == "7 tokens in all"
    use = ModelBudgetUse(budget="home", usd=5.0, spent_usd=1.5, spent_tokens=10, held_usd=0.5)
    assert budget_use_shown(use) == "home: $1.50 of $5.00, 10 tokens a day, $0.500000 held for requests"
