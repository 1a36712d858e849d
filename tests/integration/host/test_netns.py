from __future__ import annotations

import pytest

from tests.integration.host.conftest import Inside

pytestmark = pytest.mark.twice

_SOCKETS = """
import socket
pin = home.pins / "one"
def listen():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener
"""


def test_a_pinned_network_has_its_own_loopback_and_outlives_whoever_made_it(inside: Inside) -> None:
    inside(_SOCKETS + "new_netns(pin)")
    found = inside(
        _SOCKETS
        + """
listener = in_netns(pin, listen)
port = listener.getsockname()[1]
client = in_netns(pin, lambda: socket.create_connection(("127.0.0.1", port), 60))
served, _ = listener.accept()
served.sendall(b"hello")
inner = in_netns(pin, lambda: os.readlink("/proc/thread-self/ns/net"))
answer([client.recv(5).decode(), inner != os.readlink("/proc/self/ns/net")])
"""
    )
    assert found == ["hello", True]


def test_two_networks_do_not_see_each_other(inside: Inside) -> None:
    found = inside(
        _SOCKETS
        + """
new_netns(pin)
new_netns(home.pins / "two")
port = in_netns(pin, listen).getsockname()[1]
def dial():
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port))
answer(in_netns(home.pins / "two", dial) != 0)
"""
    )
    assert found is True


def test_an_unpinned_network_is_gone_and_unpinning_it_again_is_no_error(inside: Inside) -> None:
    found = inside(
        _SOCKETS
        + """
new_netns(pin)
unpin(pin)
unpin(pin)
try:
    in_netns(pin, listen)
    entered = True
except FileNotFoundError:
    entered = False
new_netns(pin)
answer([entered, os.listdir(home.pins)])
"""
    )
    assert found == [False, ["one"]]


def test_what_a_function_raises_inside_comes_out(inside: Inside) -> None:
    found = inside(
        _SOCKETS
        + """
new_netns(pin)
def fail():
    raise ValueError("inside")
try:
    in_netns(pin, fail)
except ValueError as error:
    answer(str(error))
"""
    )
    assert found == "inside"
