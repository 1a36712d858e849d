from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest
from tests.unit.sdk.fakes import FakeSupervisor, Handler, sent

from atoll import Sandbox
from atoll.errors import AgentError, InvalidSpecError, UnsupportedError
from atoll.types import GuestPath


def match(path: str, line: int, **more: Any) -> dict[str, Any]:
    return {"path": path, "line": line, "column": 1, "text": "tide", **more}


def answer(supervisor: FakeSupervisor, *frames: tuple[str, Any]) -> list[Any]:
    asked: list[Any] = []

    def route(handler: Handler) -> None:
        asked.append(sent(handler))
        handler.begin_stream()
        handler.frames(*frames)
        handler.chunk(b"")

    supervisor.agent.routes["POST", "/atoll/search"] = route
    return asked


def test_matches_come_sorted_and_can_be_printed(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    first = ("m", [match("/b", 2), match("/a", 10)])
    end = ("x", {"files": 7, "matches": 3, "unreadable": 1, "truncated": True})
    asked = answer(supervisor, first, ("k", b""), ("m", [match("/a", 9, cut=True)]), end)
    found = sandbox.files.search("ti.e", "src", glob="*.py", ignore_case=True, max_matches=3)
    assert [(one.path, one.line, one.cut) for one in found] == [
        ("/a", 9, True),
        ("/a", 10, False),
        ("/b", 2, False),
    ]
    assert (len(found), found.files_searched, found.unreadable_files, found.truncated) == (3, 7, 1, True)
    assert str(found) == "/a:9:tide\n/a:10:tide\n/b:2:tide"
    assert repr(found) == "<SearchResult: 3 matches and more in 7 files>"
    assert asked == [
        {
            "pattern": "ti.e",
            "path": "src",
            "max_matches": 3,
            "max_bytes": 8 << 20,
            "ignore_case": True,
            "globs": ["*.py"],
        }
    ]


@pytest.mark.parametrize(
    "frames",
    [
        [("m", [match("/a", 1), match("/a", 2)]), ("x", {})],
        [("m", [match("/a", 0)]), ("x", {})],
        [("m", [match("/" * 9000, 1)]), ("x", {})],
        [("m", [match("/a", 1, text="x" * 5000)]), ("x", {})],
        [("m", b"no JSON"), ("x", {})],
        [("o", b"output"), ("x", {})],
        [("x", {"files": -1})],
        [("x", {"error": "a worker of the search was lost"})],
        [("m", [match("/a", 1)])],
    ],
)
def test_a_search_that_a_guest_makes_up_is_an_error(
    supervisor: FakeSupervisor, sandbox: Sandbox, frames: list[tuple[str, Any]]
) -> None:
    answer(supervisor, *frames)
    with pytest.raises(AgentError):
        sandbox.files.search("x", max_matches=1)


def test_a_flood_of_empty_matches_ends(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    def route(handler: Handler) -> None:
        handler.begin_stream()
        padded = b"[" + b" " * 65_000 + b"]"
        for _ in range(2000):
            handler.frames(("m", padded))

    supervisor.agent.routes["POST", "/atoll/search"] = route
    with pytest.raises(AgentError, match="more matches than asked for"):
        sandbox.files.search("x")


def test_an_agent_of_an_older_atoll_is_said_to_be_one(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    def no_route(handler: Handler) -> None:
        handler.send_json({"code": "invalid", "message": "there is no route POST /atoll/search"}, 404)

    def no_operation(handler: Handler) -> None:
        handler.send_json({"code": "invalid", "message": 'there is no operation "copy"'}, 400)

    supervisor.agent.routes["POST", "/atoll/search"] = no_route
    supervisor.agent.routes["PUT", "/atoll/files"] = no_route
    supervisor.agent.routes["POST", "/atoll/files"] = no_operation
    files = sandbox.files
    for use in (
        lambda: files.search("x"),
        lambda: files.write_many({"a": "b"}),
        lambda: files.copy("a", "b"),
        lambda: files.glob("*"),
        lambda: files.chmod("a", 0o700),
        lambda: files.chown("a", "user"),
    ):
        with pytest.raises(UnsupportedError, match="from an older atoll"):
            use()


def test_what_cannot_be_asked_for_is_refused_at_once(sandbox: Sandbox) -> None:
    files = sandbox.files
    for use in (
        lambda: files.search("x", max_matches=0),
        lambda: files.search("x", max_matches=1_000_000),
        lambda: files.search("x", timeout_s=0),
        lambda: files.search(7),  # type: ignore[arg-type]
        lambda: files.search("x", glob=[7]),  # type: ignore[list-item]
        lambda: files.glob(7),  # type: ignore[arg-type]
        lambda: files.chmod("a", 0o100000),
        lambda: files.chmod("a", "755"),  # type: ignore[arg-type]
        lambda: files.chown("a", 7),  # type: ignore[arg-type]
        lambda: files.write_many([("a", "b")]),  # type: ignore[arg-type]
        lambda: files.write_many({"a": 7}),  # type: ignore[dict-item]
        lambda: files.write_many({"a": "b"}, mode=0),
    ):
        with pytest.raises(InvalidSpecError):
            use()


def test_many_files_are_sent_as_one_tar(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    bodies: list[bytes] = []

    def route(handler: Handler) -> None:
        bodies.append(handler.body)
        handler.send_json({"files": []})

    supervisor.agent.routes["PUT", "/atoll/files"] = route
    given: dict[GuestPath, str | bytes] = {
        "a": "schön",
        "/" + "x" * 200 + "/ü": b"\0" * 200_000,
        "~/empty": b"",
        "b": b"x" * 512,
    }
    assert sandbox.files.write_many(given, mode=0o750) == []
    with tarfile.open(fileobj=io.BytesIO(bodies[0])) as tar:
        read = {}
        for info in tar:
            content = tar.extractfile(info)
            assert content is not None
            assert info.mode == 0o750
            read[info.name] = content.read()
    assert read == {
        str(name): data.encode() if isinstance(data, str) else data for name, data in given.items()
    }
    assert sandbox.files.write_many({}) == []
    assert len(bodies) == 1
