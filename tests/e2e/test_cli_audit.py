"""The audit log on the command line."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tests.e2e.command_line import atoll, said

from atoll import Audit, Sandbox, Supervisor


def test_what_was_done_is_shown_outlives_a_kill_and_a_change_is_named(home: Path) -> None:
    with Sandbox.create(name="work", network="none") as sandbox:
        sandbox.run("true").check()
        hello = Supervisor.hello()
        assert hello is not None
        os.kill(hello.pid, signal.SIGKILL)
        sandbox.suspend()
        sandbox.run("true").check()
    told = [
        json.loads(line) for line in said("audit", "query", "--sandbox", sandbox.id, "--json").splitlines()
    ]
    claimed = [entry for entry in told if entry.get("source") == "client"]
    told = [entry for entry in told if entry not in claimed]
    assert [entry["act"] for entry in told] == [
        "sandbox.created",
        "sandboxes.create",
        "sandbox.suspended",
        "sandboxes.suspend",
        "sandbox.woken",
        "sandbox.killed",
        "sandboxes.delete",
    ]
    assert f"pid {os.getpid()}, user " in told[1]["caller"]
    assert [line["details"]["line"] for line in claimed] == ["true", "true"]
    exported = [json.loads(line) for line in said("audit", "export", "--format", "ocsf").splitlines()]
    assert {event["class_uid"] for event in exported} >= {1007, 6002, 6003}
    assert [json.loads(line)["act"] for line in said("audit", "export").splitlines()] == [
        event["message"] for event in exported
    ]
    newest = said("audit", "tail", "-n", "1")
    assert f"sandboxes.delete  sandbox={sandbox.id}" in newest
    assert Audit.verify().whole
    assert said("audit", "verify") == ""
    (home / "anchors").write_text("")
    assert b"no entry is anchored" in atoll("audit", "verify", "--anchors", str(home / "anchors")).stderr
    (file,) = (home / "audit").glob("*.jsonl")
    file.write_bytes(file.read_bytes().replace(b"sandbox.suspended", b"sandbox.forgotten"))
    done = atoll("audit", "verify")
    changed = told[2]["sequence"]
    assert (done.returncode, done.stdout.decode()) == (1, f"{file.name}:{changed}: entry {changed} changed\n")
