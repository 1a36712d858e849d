from __future__ import annotations

import datetime

from atoll.supervisor.tenants.model_prices import (
    OLD_DAYS,
    PriceTable,
    prices_for,
    shipped_table,
    told_prices,
)
from atoll.types import ModelPrice, ModelProvider, ModelSetup

DAY = datetime.date(2026, 11, 28)
TABLE = PriceTable(
    made_on=DAY,
    source="a test",
    prices={"openai": {"gpt-5-mini": (250, 25, 250, 2000)}, "groq": {"llama": (50, 50, 50, 80)}},
)


def test_the_table_that_is_shipped_prices_what_people_use() -> None:
    table = shipped_table()
    assert len(table.prices["openai"]) > 50
    for model in ("claude-haiku-4-5", "claude-sonnet-4-5"):
        price = table.prices["anthropic"][model]
        assert price[1] < price[0] < price[2] < price[3]
    # genai-prices counts the cache as input, and has it beside: here each token has one price
    assert table.prices["openai"]["gpt-5-mini"] == (250, 25, 250, 2000)
    assert not any("audio" in model for model in table.prices["openai"])


def test_a_provider_has_the_prices_of_its_name_or_of_its_address() -> None:
    setup = ModelSetup(
        providers={
            "groq": ModelProvider(kind="openai", url="https://api.groq.com/openai/v1"),
            "second": ModelProvider(kind="openai"),
            "cheap-llama": ModelProvider(kind="openai", url="https://llama.example/v1", prices="groq"),
            "unknown": ModelProvider(kind="openai", url="https://gpt.example/v1"),
        }
    )
    found = prices_for(setup, TABLE)
    assert found["groq"]["llama"] == {"input": 50, "cache_read": 50, "cache_write": 50, "output": 80}
    assert list(found["second"]) == ["gpt-5-mini"]
    assert found["cheap-llama"] == found["groq"]
    assert found["unknown"] == {}


def test_an_own_price_takes_the_place_of_the_tables() -> None:
    setup = ModelSetup(
        providers={"openai": ModelProvider(kind="openai")},
        prices={
            "openai/gpt-5-mini": ModelPrice(input=1, output=2),
            "openai/own": ModelPrice(input=3, output=4),
        },
    )
    found = prices_for(setup, TABLE)["openai"]
    assert (found["gpt-5-mini"]["input"], found["own"]["output"]) == (1000, 4000)
    told = told_prices(setup, TABLE, DAY)
    assert [(row.model, row.own) for row in told.prices] == [
        ("openai/gpt-5-mini", True),
        ("openai/own", True),
    ]
    assert told.prices[0].price == ModelPrice(input=1, output=2, cache_read=1, cache_write=1)


def test_a_table_that_is_too_old_says_so_and_a_home_without_providers_sees_all_of_it() -> None:
    last = DAY + datetime.timedelta(days=OLD_DAYS)
    assert not told_prices(ModelSetup(), TABLE, last).is_old
    late = told_prices(ModelSetup(), TABLE, last + datetime.timedelta(days=1))
    assert (late.is_old, late.age_days, late.made_on) == (True, 91, "2026-11-28")
    assert [row.model for row in late.prices] == ["openai/gpt-5-mini", "groq/llama"]
