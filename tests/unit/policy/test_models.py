from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.errors import InvalidSpecError
from atoll.policy import matches_model, models_from_text, narrowed_models
from atoll.types import ModelAccess, ModelProvider, ModelSetup

NAMES = ["".join(each) for size in range(1, 5) for each in itertools.product("ab/", repeat=size)]
PATTERNS = st.lists(st.text("ab/*", min_size=1, max_size=4), min_size=1, max_size=3)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("cheap", "cheap", True),
        ("cheap", "openai/cheap", False),
        ("openai/gpt-*", "openai/gpt-5-mini", True),
        ("openai/gpt-*", "other/gpt-5-mini", False),
        ("openai/gpt.5", "openai/gpt-5", False),
        ("*", "openai/ft:gpt/own", True),
        ("**-mini", "openai/gpt-5-mini", True),
    ],
)
def test_a_star_stands_for_any_characters(pattern: str, name: str, matches: bool) -> None:
    assert matches_model(pattern, name) is matches


@pytest.mark.parametrize(
    ("allow", "within", "both"),
    [
        (("*",), ("cheap", "openai/*"), ("cheap", "openai/*")),
        (("openai/gpt-5", "cheap"), ("openai/*",), ("openai/gpt-5",)),
        (("openai/gpt-*",), ("openai/*-mini",), ()),
        (("cheap",), ("*",), ("cheap",)),
        ((), ("*",), ()),
    ],
)
def test_what_both_allow_is_the_narrower_pattern(
    allow: tuple[str, ...], within: tuple[str, ...], both: tuple[str, ...]
) -> None:
    assert narrowed_models(allow, within) == both


TOML = """
[providers.openai]
kind = "openai"
keys = ["sk-1"]
[aliases]
cheap = ["openai/gpt-5-mini"]
[teams.reef]
usd = 5
"""


def test_a_text_in_toml_or_json_says_which_models_there_are() -> None:
    assert models_from_text(TOML) == ModelSetup(
        providers={"openai": ModelProvider(kind="openai", keys=("sk-1",))},
        aliases={"cheap": ("openai/gpt-5-mini",)},
        teams={"reef": ModelAccess(usd=5)},
    )
    assert models_from_text(' {"providers": {}}') == ModelSetup()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("providers = ", "neither TOML nor JSON"),
        ('{"providers": ', "neither TOML nor JSON"),
        ("[provider.openai]", "unknown field `provider`"),
        ('aliases = { cheap = ["openai/x"] }', "there is no provider 'openai'"),
        ('[providers.a]\nkind = "other"', "Invalid enum value 'other'"),
    ],
)
def test_a_text_that_says_nothing_of_the_kind_is_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidSpecError, match=told):
        models_from_text(text)


@given(PATTERNS, PATTERNS)
def test_nothing_is_allowed_that_only_one_of_both_allows(allow: list[str], within: list[str]) -> None:
    both = narrowed_models(allow, within)
    for name in NAMES:
        if any(matches_model(pattern, name) for pattern in both):
            assert any(matches_model(pattern, name) for pattern in allow)
            assert any(matches_model(pattern, name) for pattern in within)
