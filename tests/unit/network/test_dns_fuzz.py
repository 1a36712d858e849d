"""Whatever a guest, or a nameserver, sends as a name's message, the forwarder's readers stand it."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.network.deciding import decide

from atoll.network import dnsmessage

FUZZ = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
LABELS = st.lists(st.binary(max_size=70), max_size=8).map(
    lambda labels: b"".join(bytes([len(label) & 0xFF]) + label for label in labels)
)
MESSAGES = st.one_of(
    st.binary(max_size=600),
    st.builds(
        lambda numbers, name, end: struct.pack(">6H", *numbers) + name + end,
        st.tuples(*[st.integers(0, 65535)] * 6),
        LABELS,
        st.binary(max_size=12),
    ),
    st.builds(
        lambda number, name: struct.pack(">6H", number, 0x0100, 1, 0, 0, 0) + name + b"\0\0\1\0\1",
        st.integers(0, 65535),
        LABELS,
    ),
)


@FUZZ
@given(message=MESSAGES, code=st.integers(0, 15))
def test_a_refusal_is_a_response_of_the_same_id_or_nothing(message: bytes, code: int) -> None:
    refusal = dnsmessage.failure(message, code)
    if refusal is not None:
        assert refusal[:2] == message[:2]
        assert dnsmessage.code(refusal) == code
        assert not dnsmessage.is_query(refusal)
        # Nobody gets more sent somewhere than was asked.
        assert len(refusal) <= len(message)


@FUZZ
@given(query=MESSAGES, reply=MESSAGES)
def test_only_a_reply_with_the_id_of_the_question_is_an_answer(query: bytes, reply: bytes) -> None:
    if dnsmessage.is_query(query):
        if dnsmessage.answers(query, reply):
            assert reply[:2] == query[:2]
        hidden = dnsmessage.with_id(query, 7)
        assert dnsmessage.is_query(hidden)
        assert not dnsmessage.answers(query, query)


@FUZZ
@given(address=st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)), port=st.integers(-10, 70000))
def test_what_python_calls_private_is_refused(address: IPv4Address | IPv6Address, port: int) -> None:
    """All but the documentation ranges, into which gateways resolve public names on purpose."""
    verdict = decide("internet", str(address), port)
    documentation = ("192.0.2.", "198.51.100.", "203.0.113.", "2001:db8:", "2001:0db8:", "3fff:")
    if address.is_private and not str(address).startswith(documentation):
        assert verdict is not None or not 0 < port < 65536
    assert decide("none", str(address), port) is not None
