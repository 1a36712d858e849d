from __future__ import annotations

import msgspec
import pytest

from atoll.errors import InvalidSpecError
from atoll.types import ModelAccess, ModelBudget, ModelPrice, ModelProvider, ModelSetup
from atoll.types.internal import from_json, nanos_of, usd_of

OPENAI = {"openai": ModelProvider(kind="openai", keys=("sk-1",))}


def test_money_is_counted_in_whole_nanos_of_a_dollar() -> None:
    assert ModelBudget(usd=0.1).nanos == 100_000_000
    assert ModelBudget().nanos is None
    assert nanos_of(0.29) == 290_000_000
    assert usd_of(290_000_000) == 0.29


def test_a_price_is_rounded_up_and_the_cache_costs_what_the_rest_does_unless_it_is_given() -> None:
    assert ModelPrice(input=0.25, cache_read=0.0253, output=2).nanos == {
        "input": 250,
        "cache_read": 26,
        "cache_write": 250,
        "output": 2000,
    }


def test_a_provider_has_the_address_of_its_kind_unless_it_is_given() -> None:
    assert OPENAI["openai"].endpoint == ("api.openai.com", 443)
    assert OPENAI["openai"].is_kinds_own
    own = ModelProvider(kind="openai", url="http://127.0.0.1:8080/v1/")
    assert (own.address, own.endpoint) == ("http://127.0.0.1:8080/v1", ("127.0.0.1", 8080))
    assert not own.is_kinds_own


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.openai.com/v1",
        "ftp://a.example/v1",
        "https://",
        "https://me:key@a.example/v1",
        "https://a.example/v1?key=x",
        "https://a.example:port/v1",
        "https://ä.example/v1",
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidSpecError, match="the url of a provider is"):
        ModelProvider(kind="openai", url=url)


@pytest.mark.parametrize(
    ("setup", "told"),
    [
        ({"providers": {"Open AI": OPENAI["openai"]}}, "the name of a provider is 'Open AI'"),
        ({"aliases": {"cheap": ()}}, "the alias 'cheap' names no model"),
        ({"aliases": {"cheap": ("gpt-5",)}}, "the alias 'cheap' is for 'gpt-5'"),
        ({"aliases": {"cheap": ("other/gpt-5",)}}, "there is no provider 'other'"),
        ({"prices": {"openai/": ModelPrice(input=1, output=1)}}, "a price is for 'openai/'"),
    ],
)
def test_a_setup_that_names_nothing_is_refused(setup: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidSpecError, match=told):
        ModelSetup(**{"providers": OPENAI, **setup})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("access", "told"),
    [
        ({"usd": -1.0}, "usd is -1.0"),
        ({"usd": float("nan")}, "usd is nan"),
        ({"tokens": 1.5}, "tokens is 1.5"),
        ({"per": "week"}, "per is 'week'"),
        ({"allow": "cheap"}, "allow is 'cheap'"),
        ({"allow": ("two words",)}, "a pattern of models is 'two words'"),
    ],
)
def test_an_access_that_means_nothing_is_refused(access: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidSpecError, match=told):
        ModelAccess(**access)  # type: ignore[arg-type]


def test_a_setup_is_read_from_json_as_it_is_written() -> None:
    setup = ModelSetup(
        providers=OPENAI,
        aliases={"cheap": ("openai/gpt-5-mini", "openai/gpt-5-nano")},
        teams={"research": ModelAccess(allow=("cheap",), usd=20)},
        budget=ModelBudget(usd=100, per="total"),
        prices={"openai/own": ModelPrice(input=1, output=2)},
    )
    assert from_json(msgspec.json.encode(setup), ModelSetup) == setup
    with pytest.raises(msgspec.ValidationError, match="unknown field `alias`"):
        from_json(b'{"alias": {}}', ModelSetup)
