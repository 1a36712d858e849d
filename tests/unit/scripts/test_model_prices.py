"""How a table of prices is made of what genai-prices knows."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from types import SimpleNamespace

from model_prices import table, written

TODAY = datetime.date(2026, 11, 28)


def _price(**nanos: object) -> SimpleNamespace:
    return SimpleNamespace(**{f"{name}_mtok": value for name, value in nanos.items()})


def _model(name: str, prices: object, *, equals: str = "", starts_with: str = "") -> SimpleNamespace:
    clauses = [SimpleNamespace(equals=equals)] if equals else [SimpleNamespace(starts_with=starts_with)]
    return SimpleNamespace(id=name, prices=prices, match=SimpleNamespace(or_=clauses))


def _table(*models: SimpleNamespace) -> dict[str, list[int]]:
    made = table([SimpleNamespace(id="openai", models=models)], "1.0", TODAY)
    assert json.loads(written(made)) == made
    rows: dict[str, list[int]] = made["prices"]["openai"]
    return rows


def test_each_name_of_a_model_has_the_price_of_a_token_in_nanos() -> None:
    price = _price(input=Decimal("0.25"), cache_read=Decimal("0.0025"), output=Decimal(2))
    assert _table(_model("mini", price, equals="mini-2"), _model("max", price, starts_with="max-9-")) == {
        "mini": [250, 3, 250, 2000],
        "mini-2": [250, 3, 250, 2000],
        "max": [250, 3, 250, 2000],
        "max-9": [250, 3, 250, 2000],
    }


def test_of_tiers_the_highest_holds_and_of_beginnings_the_last_one() -> None:
    tiers = SimpleNamespace(base=Decimal(1), tiers=[SimpleNamespace(price=Decimal(3))])
    after, before = TODAY + datetime.timedelta(days=1), TODAY - datetime.timedelta(days=1)
    prices = [
        SimpleNamespace(constraint=None, prices=_price(input=Decimal(9), output=Decimal(9))),
        SimpleNamespace(
            constraint=SimpleNamespace(start_date=before), prices=_price(input=tiers, output=Decimal(4))
        ),
        SimpleNamespace(
            constraint=SimpleNamespace(start_date=after), prices=_price(input=Decimal(8), output=Decimal(8))
        ),
    ]
    assert _table(_model("tiered", prices, equals="tiered")) == {"tiered": [3000, 3000, 3000, 4000]}


def test_what_is_not_charged_by_tokens_of_text_is_left_out() -> None:
    price = _price(input=Decimal(1), output=Decimal(1))
    free = _price(input=Decimal(1))
    left = [_model("gpt-audio", price, equals="x"), _model("moderated", free, equals="y")]
    assert _table(*left, _model("text-embedding-3", free, equals="e")) == {
        "text-embedding-3": [1000, 1000, 1000, 0],
        "e": [1000, 1000, 1000, 0],
    }
