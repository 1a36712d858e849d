"""Whatever comes on the dial socket, its reader gives a request or an AtollError."""

from __future__ import annotations

import contextlib

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atoll.errors import AtollError
from atoll.protocol import decode_answer, decode_request

FUZZ = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
PACKETS = st.one_of(
    st.binary(max_size=300),
    st.builds(
        lambda name, port: b'{"sandbox": "%b", "port": %b}' % (name, port),
        st.binary(max_size=40),
        st.sampled_from([b"1", b"0", b"-1", b"65536", b"1e3", b"true", b"null", b'"80"', b"[" * 3000]),
    ),
)


@FUZZ
@given(packet=PACKETS)
def test_a_packet_is_a_message_or_an_error(packet: bytes) -> None:
    for decode in (decode_request, decode_answer):
        with contextlib.suppress(AtollError):
            decode(packet)
