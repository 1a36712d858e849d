"""Sandboxes that sleep when they are idle: what keeps them awake, and that their users do not notice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import until

from atoll import Lifecycle, Sandbox

# It looks each second, which is no work.
LOOKING = "exec python3 -c 'import os, time\nwhile True: time.sleep(1); os.listdir(\"/tmp\")'"


@pytest.fixture(scope="module")
def dozing(module_home: Path) -> Iterator[Sandbox]:
    """A sandbox that is suspended after two idle seconds."""
    with Sandbox.create(lifecycle=Lifecycle(idle_suspend_s=2)) as sandbox:
        yield sandbox


def _sleeps(sandbox: Sandbox) -> bool:
    return sandbox.info().state == "suspended"


def test_a_silent_build_keeps_it_awake_and_a_daemon_that_looks_around_does_not(dozing: Sandbox) -> None:
    build = dozing.processes.start("while true; do :; done")
    since: set[float] = set()

    def works_on() -> bool:
        info = dozing.info()
        assert info.state == "running"
        if info.idle is not None and info.idle.last == "processor":
            since.add(info.idle.since)
        return len(since) > 8  # it is read at least each second, so that takes longer than it may be idle

    until(works_on)
    build.kill()
    looking = dozing.processes.start(LOOKING, stream=False)
    until(lambda: _sleeps(dozing), dozing.info)
    assert dozing.info().sleep_cause == "idle"
    assert looking.pid in [one.pid for one in dozing.processes.list()]


def test_an_answer_that_takes_longer_than_it_may_be_idle_comes(dozing: Sandbox) -> None:
    server = (
        "import http.server, time\n"
        "class Slow(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        time.sleep(6); self.send_response(200); self.end_headers(); self.wfile.write(b'slow')\n"
        "http.server.HTTPServer(('', 8000), Slow).serve_forever()"
    )
    dozing.files.write("/tmp/server.py", server)
    dozing.processes.start("exec python3 /tmp/server.py", stream=False)
    dozing.ports.wait(8000)
    dozing.keep_awake(60)
    with dozing.ports.dial(8000) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        dozing.keep_awake(0)
        answer = b""
        while part := connection.recv(1000):
            answer += part
    assert answer.endswith(b"slow")
    until(lambda: _sleeps(dozing), dozing.info)


def test_an_open_terminal_is_paused_and_goes_on_at_the_next_key(module_home: Path) -> None:
    with Sandbox.create(lifecycle=Lifecycle(idle_pause_s=1, auto_resume=False)) as sandbox:
        with sandbox.processes.pty() as terminal:
            until(lambda: sandbox.info().state == "paused", sandbox.info)
            assert sandbox.info().sleep_cause == "idle"
            terminal.send(b"echo $((6 * 7))\n")
            shown = b""
            while b"42" not in shown:
                shown += terminal.receive()
        until(lambda: sandbox.info().state == "paused", sandbox.info)
        assert sandbox.run("echo thawed").stdout == "thawed\n"


def test_it_stays_awake_for_as_long_as_is_asked_for_and_for_a_caller_that_waits(dozing: Sandbox) -> None:
    assert dozing.run("sleep 6; echo over").stdout == "over\n"
    until(lambda: _sleeps(dozing), dozing.info)
    kept = dozing.keep_awake(4)
    assert kept.state == "running"
    assert kept.idle is not None
    assert kept.idle.awake_until is not None
    until(lambda: _sleeps(dozing), dozing.info)
    assert time.time() >= kept.idle.awake_until
    asked_at = time.time()
    dozing.run("echo 6 > /run/atoll/keep-awake").check()
    until(lambda: _sleeps(dozing), dozing.info)
    # without it, it would sleep after two seconds; the clock inside may be a little ahead
    assert time.time() - asked_at > 5
