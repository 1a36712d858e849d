from __future__ import annotations

from pathlib import Path

import pytest

from atoll.errors import HostError
from atoll.server.tokens import Tokens, read_secret


def test_tokens_are_stable_and_differ_by_what_they_are_for() -> None:
    tokens = Tokens(b"s" * 32)
    made = [
        tokens.access("a"),
        tokens.traffic("a"),
        tokens.volume("a"),
        tokens.upload("a"),
        tokens.access("b"),
    ]
    assert len(set(made)) == len(made)
    assert tokens.access("a") == Tokens(b"s" * 32).access("a")
    assert tokens.access("a") != Tokens(b"t" * 32).access("a")


def test_no_two_lists_of_parts_make_the_same_token() -> None:
    tokens = Tokens(b"s" * 32)
    assert tokens.upload("ab", "c") != tokens.upload("a", "bc")


def test_the_secret_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    first = read_secret(tmp_path / "server")
    assert len(first) >= 32
    assert read_secret(tmp_path / "server") == first
    assert (tmp_path / "server" / "secret").stat().st_mode & 0o777 == 0o600


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    read_secret(tmp_path)
    (tmp_path / "secret").chmod(0o644)
    with pytest.raises(HostError, match="other users can read"):
        read_secret(tmp_path)
