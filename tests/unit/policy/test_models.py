from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.policy import matches_model, narrowed_models

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


@given(PATTERNS, PATTERNS)
def test_nothing_is_allowed_that_only_one_of_both_allows(allow: list[str], within: list[str]) -> None:
    both = narrowed_models(allow, within)
    for name in NAMES:
        if any(matches_model(pattern, name) for pattern in both):
            assert any(matches_model(pattern, name) for pattern in allow)
            assert any(matches_model(pattern, name) for pattern in within)
