from __future__ import annotations

from pathlib import Path

from atoll.network.resolvers import HostNameservers, parse


def test_nameservers_are_read_in_order_and_comments_left_out() -> None:
    text = "# nameserver 1.1.1.1\nsearch a b\nnameserver 127.0.0.53\nnameserver\t2001:db8::1\nnameserver x\n"
    assert parse(text) == [("127.0.0.53", 53), ("2001:db8::1", 53)]


def test_without_a_nameserver_it_is_this_host() -> None:
    assert parse("") == [("127.0.0.1", 53)]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "resolv.conf"
    servers = HostNameservers(path)
    assert servers() == [("127.0.0.1", 53)]
    path.write_text("nameserver 192.0.2.1\n")
    assert servers() == [("192.0.2.1", 53)]
    changed = tmp_path / "changed"
    changed.write_text("nameserver 192.0.2.2\n")
    changed.rename(path)
    assert servers() == [("192.0.2.2", 53)]
