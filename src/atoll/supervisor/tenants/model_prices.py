"""The prices of models: the table that comes with atoll, and the owner's own."""

from __future__ import annotations

import datetime
import functools
from importlib import resources

import msgspec

from atoll.types import ModelPrice, ModelPriceRow, ModelPrices, ModelProvider, ModelSetup
from atoll.types.internal import from_json

OLD_DAYS = 90
"""After so many days too many prices have changed."""

Nanos = dict[str, int]
_NAMES = ("input", "cache_read", "cache_write", "output")
_NANOS_OF_MILLIONTH = 1000


class PriceTable(msgspec.Struct, frozen=True, kw_only=True):
    """The table, as ``scripts/model_prices.py`` writes it.

    Args:
        made_on: The day on which it was made.
        source: Whose prices these are.
        prices: The price of a token in nanos of a dollar, by provider and model: input, cache read, cache write,
            output.
    """

    made_on: datetime.date
    source: str
    prices: dict[str, dict[str, tuple[int, int, int, int]]]

    def age_days(self, today: datetime.date) -> int:
        """How old it is on a day."""
        return max((today - self.made_on).days, 0)


@functools.cache
def shipped_table() -> PriceTable:
    """The table that comes with atoll."""
    text = (resources.files("atoll.supervisor.tenants") / "model_prices.json").read_text("utf-8")
    return from_json(text, PriceTable)


def prices_for(setup: ModelSetup, table: PriceTable) -> dict[str, dict[str, Nanos]]:
    """The price of a token of each model that has one, in nanos of a dollar, by provider and model."""
    found: dict[str, dict[str, Nanos]] = {}
    for name, provider in setup.providers.items():
        rows = table.prices.get(_priced_as(name, provider, table), {})
        found[name] = {model: dict(zip(_NAMES, row, strict=True)) for model, row in rows.items()}
    for full, price in setup.prices.items():
        provider_name, _, model = full.partition("/")
        found[provider_name][model] = price.nanos
    return found


def told_prices(setup: ModelSetup, table: PriceTable, today: datetime.date) -> ModelPrices:
    """The prices for people: those of the providers that the home has, or all of the table if it has none."""
    if not setup.providers:
        own = {name: ModelProvider(kind="openai", prices=name) for name in table.prices}
        setup = msgspec.structs.replace(setup, providers=own)
    rows = [
        ModelPriceRow(model=full, price=_told(price), own=full in setup.prices)
        for provider, models in prices_for(setup, table).items()
        for model, price in sorted(models.items())
        for full in (f"{provider}/{model}",)
    ]
    age_days = table.age_days(today)
    return ModelPrices(
        made_on=table.made_on.isoformat(), age_days=age_days, is_old=age_days > OLD_DAYS, prices=rows
    )


def _priced_as(name: str, provider: ModelProvider, table: PriceTable) -> str:
    """Whose prices hold for a provider, as the table names it."""
    if provider.prices is not None:
        return provider.prices
    return name if name in table.prices else provider.kind if provider.is_kinds_own else ""


def _told(price: Nanos) -> ModelPrice:
    return ModelPrice(**{name: value / _NANOS_OF_MILLIONTH for name, value in price.items()})
