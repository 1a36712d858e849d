"""A value opens only with the right key, and only as what it was sealed as."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.errors import DamagedError, HostError
from atoll.secrets import Belonging, Vault, open_vault

KEY = bytes(range(32))
MAIL = Belonging(team="reef", secret_id="sec_1", version=3, name="mail", hosts=("a.example",), canary=False)
VALUE = "correct horse battery staple"


def test_what_is_sealed_opens_and_shows_nothing_of_itself() -> None:
    first, second = Vault(KEY).seal(VALUE, MAIL), Vault(KEY).seal(VALUE, MAIL)
    assert first != second
    assert Vault(KEY).open(first, MAIL) == Vault(KEY).open(second, MAIL) == VALUE
    for text in (VALUE.encode(), base64.b64encode(VALUE.encode()), b"mail", b"reef", KEY):
        assert text not in first
    assert KEY.hex() not in repr(Vault(KEY))


@given(st.text(min_size=1, max_size=200), st.text() | st.none())
def test_any_text_of_any_team_opens_again(value: str, team: str | None) -> None:
    belonging = msgspec.structs.replace(MAIL, team=team)
    assert Vault(KEY).open(Vault(KEY).seal(value, belonging), belonging) == value


@pytest.mark.parametrize(
    "change",
    [
        {"team": "wreck"},
        {"team": None},
        {"secret_id": "sec_2"},
        {"version": 2},
        {"name": "mail2"},
        {"hosts": ()},
        {"hosts": ("a.example", "b.example")},
        {"canary": True},
    ],
    ids=str,
)
def test_it_opens_as_nothing_else(change: dict[str, Any]) -> None:
    sealed = Vault(KEY).seal(VALUE, MAIL)
    with pytest.raises(DamagedError) as raised:
        Vault(KEY).open(sealed, msgspec.structs.replace(MAIL, **change))
    assert VALUE not in str(raised.value)


def test_no_team_and_a_team_named_like_nothing_are_not_the_same() -> None:
    sealed = Vault(KEY).seal(VALUE, msgspec.structs.replace(MAIL, team=None))
    for team in ("", "null", "None"):
        with pytest.raises(DamagedError):
            Vault(KEY).open(sealed, msgspec.structs.replace(MAIL, team=team))


def test_a_changed_bit_anywhere_is_noticed() -> None:
    sealed = Vault(KEY).seal(VALUE, MAIL)
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 1
        with pytest.raises(DamagedError):
            Vault(KEY).open(bytes(changed), MAIL)


@pytest.mark.parametrize("length", [0, 1, 5, 13, 28, 29])
def test_a_piece_is_noticed(length: int) -> None:
    with pytest.raises(DamagedError):
        Vault(KEY).open(Vault(KEY).seal(VALUE, MAIL)[:length], MAIL)


def test_another_key_opens_nothing() -> None:
    sealed = Vault(KEY).seal(VALUE, MAIL)
    with pytest.raises(DamagedError):
        Vault(bytes(32)).open(sealed, MAIL)


def test_a_key_that_may_not_be_made_is_missed_by_its_place() -> None:
    class Nowhere:
        place = "the cupboard"

        def read(self) -> None:
            return None

        def create(self) -> bytes:
            return KEY

    with pytest.raises(HostError, match="the cupboard"):
        open_vault(Nowhere(), may_create=False)
    assert Vault(KEY).open(open_vault(Nowhere(), may_create=True).seal(VALUE, MAIL), MAIL) == VALUE
