from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.network import dnsmessage

QUESTION = b"\x07example\x03org\x00\x00\x01\x00\x01"


def message(number: int, flags: int, question: bytes = QUESTION, questions: int = 1) -> bytes:
    return struct.pack(">6H", number, flags, questions, 0, 0, 0) + question


def test_a_query_is_a_standard_one_with_one_whole_question() -> None:
    assert dnsmessage.is_query(message(1, 0x0100))
    assert not dnsmessage.is_query(message(1, 0x8100))
    assert not dnsmessage.is_query(message(1, 0x2900))
    assert not dnsmessage.is_query(message(1, 0x0100, QUESTION * 2, questions=2))
    assert not dnsmessage.is_query(message(1, 0x0100, QUESTION[:-1]))
    assert not dnsmessage.is_query(message(1, 0x0100, b"\xc0\x0c\x00\x01\x00\x01"))
    assert not dnsmessage.is_query(b"\0" * 11)


def test_a_name_longer_than_255_bytes_is_no_question() -> None:
    assert not dnsmessage.is_query(
        message(1, 0x0100, b"\x3f" + b"a" * 63 + (b"\x3f" + b"a" * 63) * 3 + QUESTION)
    )


def test_another_id_changes_nothing_else() -> None:
    assert dnsmessage.with_id(message(1, 0x0100), 513) == message(513, 0x0100)


def test_an_answer_has_the_id_and_the_question_in_any_case_of_letters() -> None:
    query = message(7, 0x0100)
    assert dnsmessage.answers(query, message(7, 0x8180))
    assert dnsmessage.answers(query, message(7, 0x8180, QUESTION.replace(b"example", b"eXaMpLe")))
    assert not dnsmessage.answers(query, message(8, 0x8180))
    assert not dnsmessage.answers(query, message(7, 0x8180, QUESTION.replace(b"org", b"net")))
    assert not dnsmessage.answers(query, query)


def test_an_answer_without_a_question_counts_only_when_it_says_no() -> None:
    assert dnsmessage.answers(message(7, 0x0100), message(7, 0x8181, b"", questions=0))
    assert not dnsmessage.answers(message(7, 0x0100), message(7, 0x8180, b"", questions=0))


def test_a_failure_repeats_id_and_question() -> None:
    answer = dnsmessage.failure(message(7, 0x0100) + b"more", dnsmessage.REFUSED)
    assert answer == message(7, 0x8185)
    assert dnsmessage.code(answer) == dnsmessage.REFUSED


def test_what_is_no_question_at_all_gets_no_answer() -> None:
    assert dnsmessage.failure(b"\0" * 11, dnsmessage.MALFORMED) is None
    assert dnsmessage.failure(message(7, 0x8180), dnsmessage.MALFORMED) is None


@settings(deadline=None, derandomize=True, database=None)
@given(st.binary(max_size=600), st.binary(max_size=600))
def test_no_bytes_upset_it(query: bytes, reply: bytes) -> None:
    dnsmessage.is_query(query)
    dnsmessage.answers(query, reply)
    dnsmessage.failure(query, dnsmessage.MALFORMED)
