from __future__ import annotations

import socket
import struct

from atoll.network import filters, netlink, nftables
from atoll.network.flows import Flow, challenge_packet
from atoll.network.netlink import Message, attribute, nested, text
from atoll.network.nftables import ACCEPT, PREROUTING, Chain


def test_an_attribute_is_padded_but_says_its_own_length() -> None:
    assert attribute(3, b"abcde") == struct.pack("=HH", 9, 3) + b"abcde\0\0\0"


def test_attributes_read_back_as_written() -> None:
    data = attribute(1, b"x") + text(2, "name") + nested(3, attribute(4, b"1234"))
    assert list(netlink.attributes(data)) == [(1, b"x"), (2, b"name\0"), (3, attribute(4, b"1234"))]


def test_attributes_of_a_cut_message_end() -> None:
    assert list(netlink.attributes(struct.pack("=HH", 0, 1) + b"rest")) == []


def test_messages_are_numbered_and_aligned() -> None:
    first, second = Message(16, 4, b"abc"), Message(17, 0, b"")
    assert netlink.encode([first, second]) == (
        struct.pack("=IHHII", 19, 16, 5, 0, 0) + b"abc\0" + struct.pack("=IHHII", 16, 17, 1, 1, 0)
    )


def test_a_table_is_one_batch() -> None:
    messages = nftables.table_messages(socket.AF_INET, "t", [Chain("c", "filter", PREROUTING, -300, ACCEPT)])
    assert [message.kind for message in messages] == [0x10, 0xA00, 0xA03, 0x11]
    assert messages[0].body == messages[-1].body == b"\x00\x00\x00\x0a"


def test_an_expression_is_encoded_as_the_kernel_documents_it() -> None:
    _, matching = nftables.port(53)
    assert matching == bytes.fromhex(
        "2c00018008000100636d700020000280080001000000000108000200000000000c0003800600010000350000"
    )


def test_every_chain_that_may_drop_drops_by_default() -> None:
    policies = {chain.name: chain.policy for chain in filters.outer_chains()}
    assert policies["input"] == policies["forward"] == nftables.DROP
    assert all(chain.policy == nftables.DROP and not chain.rules for chain in filters.closed_chains())


def test_a_challenge_comes_from_the_far_end_and_carries_a_right_checksum() -> None:
    packet = challenge_packet(Flow(40000, "198.51.100.7", 443), 1, 2)
    assert packet[12:20] == socket.inet_aton("198.51.100.7") + socket.inet_aton("10.254.0.2")
    assert struct.unpack(">HHII", packet[20:32]) == (443, 40000, 1, 2)
    summed = packet[12:20] + struct.pack(">HH", 6, 20) + packet[20:]
    total = sum(struct.unpack(f">{len(summed) // 2}H", summed))
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF
