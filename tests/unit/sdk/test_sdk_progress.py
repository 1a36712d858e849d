"""The line that shows how far a create is, on a terminal."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.sdk.fakes import FakeSupervisor, Handler, info

from atoll import Sandbox, Wait
from atoll.errors import ImageBuildError, InvalidSpecError
from atoll.sdk import _progress
from atoll.sdk._progress import ProgressLine
from atoll.types import Progress

CREATE = ("POST", "/v1/sandboxes")
CLEAR = "\r\x1b[K"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def see_as_stderr(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO | None) -> None:
    # not in `sys` itself: pytest puts its own there before a test
    monkeypatch.setattr(_progress, "sys", SimpleNamespace(stderr=stream))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error, of which a line may be seen at once."""
    stream = Terminal()
    see_as_stderr(monkeypatch, stream)
    monkeypatch.setattr(_progress, "_QUIET_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("ATOLL_PROGRESS", raising=False)
    return stream


def building(*lines: dict[str, Any]) -> object:
    """A route that reports progress, then the last line."""

    def build(handler: Handler) -> None:
        if "x-ndjson" not in handler.headers.get("accept", ""):
            handler.send_json(info())
            return
        handler.begin_stream()
        for line in lines:
            handler.chunk(json.dumps(line).encode() + b"\n")
        handler.chunk(b"")

    return build


def test_a_create_that_takes_long_shows_a_line_and_removes_it(
    supervisor: FakeSupervisor, terminal: Terminal
) -> None:
    steps = [{"step": "pull python", "done": 1, "total": 2}, {"step": "boot\x1b[31m", "whole": 0.99}]
    supervisor.api.routes[CREATE] = building(*({"progress": step} for step in steps), {"result": info()})
    Sandbox.create(keep=True).close()
    assert terminal.getvalue() == f"{CLEAR}atoll: pull python 50 %{CLEAR}atoll: boot?[31m 99 %{CLEAR}"


def test_a_heading_is_a_line_that_stays(supervisor: FakeSupervisor, terminal: Terminal) -> None:
    steps = [{"step": step, "heading": "building base, once"} for step in ("download", "install")]
    supervisor.api.routes[CREATE] = building(*({"progress": step} for step in steps), {"result": info()})
    Sandbox.create(keep=True).close()
    told = f"{CLEAR}atoll: building base, once\n{CLEAR}atoll: download{CLEAR}atoll: install{CLEAR}"
    assert terminal.getvalue() == told


def test_a_create_that_fails_leaves_no_line(supervisor: FakeSupervisor, terminal: Terminal) -> None:
    error = {"code": "image_build_failed", "message": "no disk"}
    supervisor.api.routes[CREATE] = building({"progress": {"step": "build"}}, {"error": error})
    with pytest.raises(ImageBuildError):
        Sandbox.create()
    assert terminal.getvalue() == f"{CLEAR}atoll: build{CLEAR}"


@pytest.mark.parametrize("why", ["argument", "setting", "no terminal", "dumb", "closed", "none", "own"])
def test_where_nobody_looks_or_wants_it_there_is_no_line(
    supervisor: FakeSupervisor, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    own: list[Progress] = []
    stream: io.StringIO = terminal
    match why:
        case "setting":
            monkeypatch.setenv("ATOLL_PROGRESS", "off")
        case "dumb":
            monkeypatch.setenv("TERM", "dumb")
        case "no terminal":
            stream = io.StringIO()
            see_as_stderr(monkeypatch, stream)
        case "none":
            see_as_stderr(monkeypatch, None)
    supervisor.api.routes[CREATE] = building({"progress": {"step": "build"}}, {"result": info()})
    if why == "argument":
        Sandbox.create(keep=True, wait=Wait(on_progress=False)).close()
    elif why == "own":
        Sandbox.create(keep=True, wait=Wait(on_progress=own.append)).close()
        assert [progress.step for progress in own] == ["build"]
    elif why == "closed":
        stream = Terminal()
        see_as_stderr(monkeypatch, stream)
        stream.close()
        Sandbox.create(keep=True).close()
        return
    else:
        Sandbox.create(keep=True).close()
    assert stream.getvalue() == ""


def test_a_setting_that_is_none_is_refused(
    supervisor: FakeSupervisor, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATOLL_PROGRESS", "sometimes")
    with pytest.raises(InvalidSpecError, match="ATOLL_PROGRESS is 'sometimes'"):
        Sandbox.create()


def test_what_is_over_soon_shows_nothing_and_a_line_fits_its_terminal() -> None:
    stream = io.StringIO()
    soon = ProgressLine(stream, 80, quiet_s=1000.0)
    soon.report(Progress(step="boot"))
    soon.close()
    assert stream.getvalue() == ""
    line = ProgressLine(stream, 20, quiet_s=0.0)
    line.report(Progress(step="x" * 50, done=1, total=1))
    line.report(Progress(step="x" * 50, done=1, total=1))
    assert stream.getvalue() == f"{CLEAR}atoll: {'x' * 6} 100 %"


def test_a_terminal_that_goes_away_ends_the_line_only() -> None:
    stream = io.StringIO()
    line = ProgressLine(stream, 80, quiet_s=0.0)
    stream.close()
    line.report(Progress(step="boot"))
    line.report(Progress(step="run"))
    line.close()
