"""Ending dialled connections, where the kernel refuses some: one of another age than this host's."""

import errno

import pytest

from atoll.network.flows import Dialled
from atoll.network.netlink import Message


class Kernel:
    """Refuses to end connections from one port, as Linux before 6.0 does when only their port waits."""

    def __init__(self, refused: int, held: list[bytes]) -> None:
        self.ended: list[int] = []
        self._refused = refused
        self._held = held

    def change(self, messages: list[Message]) -> None:
        port = int.from_bytes(messages[0].body[8:10], "big")
        if port == self._refused:
            raise OSError(errno.EOPNOTSUPP, "refused")
        self.ended.append(port)

    def ask(self, _: Message) -> list[bytes]:
        return self._held


def test_a_connection_that_is_over_keeps_no_other_from_being_ended() -> None:
    kernel = Kernel(1001, [])
    dialled = Dialled(kernel, known=True)  # type: ignore[arg-type]
    for own_port in range(1000, 1005):
        dialled.note(own_port, 80)
    dialled.end()
    assert sorted(kernel.ended) == [1000, 1002, 1003, 1004]


def test_it_is_told_when_a_connection_cannot_be_ended_that_somebody_holds() -> None:
    dialled = Dialled(Kernel(1001, [bytes(56)]), known=True)  # type: ignore[arg-type]
    dialled.note(1001, 80)
    with pytest.raises(OSError, match="refused"):
        dialled.end()
