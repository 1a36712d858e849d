from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

import msgspec
import pytest

from atoll.errors import InvalidSpecError
from atoll.guest import (
    GuestInit,
    GuestRequest,
    Program,
    Search,
    change_mode,
    change_owner,
    files_request,
    flush,
    get_file,
    get_tree,
    glob_files,
    health,
    init,
    list_processes,
    loopback,
    process_output,
    put_file,
    put_files,
    put_tree,
    resize_process,
    search_files,
    signal_process,
    start_process,
    stats,
    warm,
    watch,
    write_stdin,
)
from atoll.types import TerminalSize


def test_what_is_absent_is_not_sent() -> None:
    assert msgspec.json.decode(start_process(Program(line="true")).body or b"") == {"line": "true"}
    assert msgspec.json.decode(init(GuestInit(hostname="a")).body or b"") == {"hostname": "a"}
    assert msgspec.json.decode(files_request("stat", "a").body or b"") == {"op": "stat", "path": "a"}


def test_what_is_done_to_files_is_sent_as_one_body() -> None:
    def body(request: GuestRequest) -> object:
        return msgspec.json.decode(request.body or b"")

    assert body(glob_files("a", "*", hidden=False, user=None)) == {"op": "glob", "path": "a", "pattern": "*"}
    assert body(change_mode("a", 0, recursive=True, user="root")) == {
        "op": "chmod",
        "path": "a",
        "mode": 0,
        "recursive": True,
        "user": "root",
    }
    owner = body(change_owner("a", "user:users", recursive=False, user=None))
    assert owner == {"op": "chown", "path": "a", "owner": "user:users"}
    search = Search(pattern="x", path=".", max_matches=1, max_bytes=2)
    assert body(search_files(search)) == {"pattern": "x", "path": ".", "max_matches": 1, "max_bytes": 2}
    assert put_files("a b").target == "/atoll/files?user=a%20b"
    assert put_file("a", None, mode=None, body=None, whole=True).target == "/atoll/file?path=a&whole=true"


def test_a_terminal_is_sent_with_its_size() -> None:
    program = Program(argv=("bash",), pty=TerminalSize(100, 30), stdin=True)
    assert msgspec.json.decode(start_process(program).body or b"")["pty"] == {"cols": 100, "rows": 30}


def test_entropy_travels_as_base64() -> None:
    assert msgspec.json.decode(init(GuestInit(entropy=b"\0\xff")).body or b"") == {"entropy": "AP8="}


@pytest.mark.parametrize("path", ["/a b/ä&c=d?#", "/a\r\nhost: x", "~/x", "50%"])
def test_a_path_cannot_change_the_request_around_it(path: str) -> None:
    target = get_file(path, "user").target
    assert target.startswith("/atoll/file?path=")
    assert target.endswith("&user=user")
    assert target.count("&") == 1
    assert not set(target) & set(" \r\n#")


def test_a_path_may_be_a_path_object_wherever_one_is_taken() -> None:
    a, b = PurePosixPath("/x/a"), PurePosixPath("b")
    assert files_request("move", a, to=b) == files_request("move", "/x/a", to="b")
    assert get_file(a, None) == get_file("/x/a", None)
    assert put_file(a, None, mode=None, body=b"") == put_file("/x/a", None, mode=None, body=b"")
    assert get_tree(a, None) == get_tree("/x/a", None)
    assert put_tree(a, None) == put_tree("/x/a", None)
    assert watch(a, None, recursive=True) == watch("/x/a", None, recursive=True)


def test_modes_are_octal() -> None:
    assert put_file("/a", None, mode=0o755, body=b"").target == "/atoll/file?path=%2Fa&mode=755"


def test_bodies_that_come_in_pieces_are_not_in_the_request() -> None:
    assert put_tree("/a", None).body is None
    assert write_stdin(7, end=True, body=None).target == "/atoll/processes/7/stdin?eof=1"
    assert signal_process(7, 9).target == "/atoll/processes/7/signal"
    assert "recursive=" in watch("/a", None, recursive=True).target
    assert "recursive=" not in watch("/a", None, recursive=False).target


@pytest.mark.parametrize(
    "ask", [lambda bad: get_file(bad, None), lambda bad: start_process(Program(argv=("echo", bad)))]
)
def test_bytes_that_are_no_text_are_refused_with_a_remedy(ask: Callable[[str], object]) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        ask("a\udcff")
    assert caught.value.hint


def test_a_guest_is_asked_to_warm_an_environment_and_to_write_its_caches() -> None:
    request = warm("user")
    assert (request.method, request.target) == ("POST", "/atoll/warm")
    assert msgspec.json.decode(request.body or b"") == {"user": "user"}
    assert (flush().method, flush().target) == ("POST", "/atoll/flush")


def test_what_only_asks_sends_no_body() -> None:
    asked = [health(), list_processes(), process_output(7), stats()]
    assert [(each.method, each.target) for each in asked] == [
        ("GET", "/health"),
        ("GET", "/atoll/processes"),
        ("GET", "/atoll/processes/7/output"),
        ("GET", "/atoll/stats"),
    ]
    assert {each.body for each in asked} == {b""}


def test_a_terminal_is_resized_and_a_port_of_loopback_reached() -> None:
    resized = resize_process(7, TerminalSize(cols=80, rows=24))
    assert resized.target == "/atoll/processes/7/resize"
    assert msgspec.json.decode(resized.body or b"") == {"cols": 80, "rows": 24}
    upgrade = loopback(8080)
    assert (upgrade.method, upgrade.target) == ("POST", "/atoll/loopback?port=8080")
    assert ("upgrade", "tcp") in upgrade.headers
