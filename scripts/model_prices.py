"""Writes the table of model prices that atoll ships, from the PyPI package ``genai-prices``.

    uv run --with genai-prices scripts/model_prices.py

Of a model whose price depends on the length of a request or on the time of day, the table has the highest, so
that no request costs more than was counted. Of prices with a beginning, it has those of today. Models of sound and
pictures are left out: they are charged for something else than tokens of text.
"""

from __future__ import annotations

import datetime
import importlib
import importlib.metadata
import json
import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent.parent / "src/atoll/supervisor/tenants/model_prices.json"
# Those whose API is OpenAI's or Anthropic's.
PROVIDERS = (
    "anthropic", "cerebras", "deepseek", "fireworks", "google", "groq", "minimax", "mistral", "moonshotai",
    "openai", "perplexity", "together", "x-ai", "zai",
)  # fmt: skip
NAMES = ("input_mtok", "cache_read_mtok", "cache_write_mtok", "output_mtok")
_NAME = re.compile(r"[!-~]{1,200}")
_NO_TEXT = re.compile(
    r"audio|tts|speech|voice|realtime|live|transcri|whisper|image|imagen|veo|sora|dall|ocr|moderation"
)


def highest(price: Any) -> Decimal | None:
    """The highest of a price's tiers."""
    if price is None or isinstance(price, Decimal):
        return price
    found: Decimal = max([price.base, *(tier.price for tier in price.tiers)])
    return found


def in_force(prices: Any, today: datetime.date) -> list[Any]:
    """The prices of which one holds at any time of today."""
    if not isinstance(prices, list):
        return [prices]
    found: list[Any] = []
    for each in prices:
        begins = getattr(each.constraint, "start_date", None)
        if each.constraint is None or begins is None:
            found.append(each.prices)
        elif begins <= today:
            found = [each.prices]
    return found


def nanos(prices: list[Any]) -> list[int] | None:
    """The price of a token in nanos of a dollar: input, cache read, cache write, output. None if it has none."""
    row: list[int] = []
    for name in NAMES:
        values = [value for each in prices if (value := highest(getattr(each, name, None))) is not None]
        if not values and name == "input_mtok":
            return None
        row.append(math.ceil(max(values) * 1000) if values else (row[0] if "cache" in name else 0))
    return row


def names_of(model: Any) -> set[str]:
    """The names by which a model is asked for, without the dates that may end them."""
    found = {model.id}
    clauses = getattr(model.match, "or_", [model.match])
    for clause in clauses:
        if (name := getattr(clause, "equals", None)) is not None:
            found.add(name)
        elif (beginning := getattr(clause, "starts_with", None)) is not None:
            found.add(beginning.rstrip("-@"))
    return {name for name in found if _NAME.fullmatch(name)}


def table(providers: list[Any], version: str, today: datetime.date) -> dict[str, Any]:
    """The table, as atoll reads it."""
    prices: dict[str, dict[str, list[int]]] = {}
    for provider in providers:
        if provider.id not in PROVIDERS:
            continue
        rows = prices[provider.id] = {}
        for model in provider.models:
            row = nanos(in_force(model.prices, today))
            free_answers = row is not None and row[-1] == 0 and row[0] > 0
            if row is None or _NO_TEXT.search(model.id) or (free_answers and "embed" not in model.id):
                continue
            for name in sorted(names_of(model)):
                # of two that have the same name, the dearer one
                rows[name] = max(row, rows.get(name, row))
    return {"made_on": today.isoformat(), "source": f"genai-prices {version}", "prices": prices}


def written(made: dict[str, Any]) -> str:
    """The table as text, one model a line."""
    parts = []
    for provider, rows in sorted(made["prices"].items()):
        lines = ",\n".join(f"   {json.dumps(name)}: {row}" for name, row in sorted(rows.items()))
        parts.append(f"  {json.dumps(provider)}: {{\n{lines}\n  }}")
    head = f' "made_on": {json.dumps(made["made_on"])},\n "source": {json.dumps(made["source"])},\n'
    return "{\n" + head + ' "prices": {\n' + ",\n".join(parts) + "\n }\n}\n"


def main() -> None:
    # no checker has this package
    providers = importlib.import_module("genai_prices.data").providers
    version = importlib.metadata.version("genai-prices")
    today = datetime.datetime.now(datetime.UTC).date()
    TABLE.write_text(written(table(providers, version, today)), encoding="utf-8")


if __name__ == "__main__":
    main()
