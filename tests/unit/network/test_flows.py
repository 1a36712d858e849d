"""What the kernel's times of a connection say about questions that have no answer."""

from __future__ import annotations

import struct

import pytest

from atoll.network import flows
from atoll.network.addresses import RELAY_PORT

AGENT_PORT = 49983


def told(port: int, times: tuple[int, int, int], received: int, sent: int) -> int | None:
    """What is found in the kernel's answer: milliseconds since data was sent, was received, and was acknowledged."""
    info = flows._INFO.pack(*times, received, sent)
    attribute = struct.pack("=HH", 4 + len(info), flows._DIAG_INFO) + info
    head = bytearray(flows._DIAG_BYTES)
    struct.pack_into(">HH", head, flows._ID_AT, port, AGENT_PORT)
    return flows._unanswered_ms(bytes(head) + attribute)


@pytest.mark.parametrize(
    ("times", "received", "sent", "expected"),
    [
        ((50, 90, 50), 3, 2, 50),
        ((90, 50, 50), 3, 2, None),
        ((90, 90, 90), 3, 2, None),
        ((90, 90, 86), 3, 2, 90),
        ((20, 48, 16), 0, 1, 20),
        ((48, 20, 16), 0, 0, None),
        # seen on a busy host: the guest sent its answer once more
        ((1384, 1384, 1180), 3, 2, None),
        # the guest's keepalive
        ((20000, 20000, 5000), 3, 2, None),
    ],
)
def test_a_clients_question_has_no_answer_while_it_is_newer_than_all_answers(
    times: tuple[int, int, int], received: int, sent: int, expected: int | None
) -> None:
    assert told(40000, times, received, sent) == expected


def test_a_guests_question_is_what_came_last_from_it() -> None:
    assert told(RELAY_PORT, (90, 50, 50), 3, 2) == 50
    assert told(RELAY_PORT, (50, 90, 50), 3, 2) is None
