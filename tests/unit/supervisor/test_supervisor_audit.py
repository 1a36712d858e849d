"""What the supervisor notes in the audit log."""

from __future__ import annotations

import asyncio
import base64
import os
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import msgspec
import pytest

from atoll.errors import HostError, InvalidSpecError
from atoll.network import Pace
from atoll.sdk._anchors import read_anchors
from atoll.supervisor.api.acts import act_of
from atoll.supervisor.lifecycle.stray_decisions import StrayDecisions
from atoll.supervisor.monitors.audit_anchor import AuditAnchoring
from atoll.supervisor.monitors.audit_late import AuditLateness
from atoll.supervisor.settings import read_settings
from atoll.supervisor.state.audit_key import audit_key
from atoll.types import AuditAnchor, EgressDecision
from tests.unit.supervisor.harness import Harness, with_harness

CALLER = {"atoll-caller": "run.py, pid 7, user ada", "content-type": "application/json"}


async def entries(harness: Harness, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await harness.ask("GET", f"/v1/audit?{query}")).json["entries"]
    return found


@with_harness
async def test_what_is_asked_and_what_happens_is_noted_with_who_asked(harness: Harness) -> None:
    made = (await harness.ask("POST", "/v1/sandboxes", {"team": None, "name": "work"}, CALLER)).json
    ref = made["sandbox_id"]
    await harness.ask("POST", f"/v1/sandboxes/{ref}/pause", {}, CALLER)
    policy = {"network": {"rules": [{"hosts": ["example.org"]}]}}
    assert (await harness.ask("POST", f"/v1/sandboxes/{ref}/network", policy, CALLER)).status == 200
    await harness.ask("POST", f"/v1/sandboxes/{ref}/snapshots", {"name": "kept"}, CALLER)
    await harness.ask("DELETE", f"/v1/sandboxes/{ref}", None, CALLER)
    assert (await harness.ask("POST", f"/v1/sandboxes/{ref}/pause", {}, CALLER)).status == 404
    assert (await harness.ask("GET", f"/v1/sandboxes/{ref}")).status == 404
    found = await entries(harness)
    assert [entry["sequence"] for entry in found] == list(range(1, len(found) + 1))
    assert [entry["act"] for entry in found] == [
        "sandbox.created",
        "sandboxes.create",
        "sandbox.paused",
        "sandboxes.pause",
        "sandbox.changed",
        "sandboxes.network",
        "snapshot.created",
        "sandboxes.snapshots",
        "sandbox.killed",
        "sandboxes.delete",
        "sandboxes.pause",
    ]
    by_act = {entry["act"]: entry for entry in found}
    assert {entry.get("sandbox_id") for entry in found[:-1]} == {ref}
    assert by_act["sandbox.created"]["details"] == {"image": "base", "by": CALLER["atoll-caller"]}
    assert by_act["sandbox.paused"]["details"] == {"cause": "request"}
    assert "example.org" in by_act["sandbox.changed"]["details"]["network"]
    assert by_act["sandboxes.delete"]["caller"] == CALLER["atoll-caller"]
    assert "outcome" not in by_act["sandboxes.delete"]
    assert found[-1]["outcome"] == "sandbox_not_found"
    assert [entry["act"] for entry in await entries(harness, f"sandbox={ref}&act=sandbox")] == [
        "sandbox.created",
        "sandbox.paused",
        "sandbox.changed",
        "sandbox.killed",
    ]
    assert [entry["sequence"] for entry in await entries(harness, "newest=2")] == [10, 11]
    assert [entry["sequence"] for entry in await entries(harness, "after=3&limit=2")] == [4, 5]


@with_harness
async def test_a_team_and_its_keys_and_secrets_are_named_and_no_value_is(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    key = (await harness.ask("POST", "/v1/keys", {"team": "reef", "name": "ci"})).json["key"]
    secret = {"name": "mail", "value": "s3cr3t-value", "hosts": ["example.org"], "team": "reef"}
    assert (await harness.ask("POST", "/v1/secrets", secret)).status == 200
    assert (await harness.ask("POST", "/v1/keys/check", {"key": f"{key[:-4]}0000"})).status == 401
    found = await entries(harness)
    assert [(entry["act"], entry.get("team")) for entry in found] == [
        ("teams.create", "reef"),
        ("keys.create", "reef"),
        ("secrets.create", "reef"),
        ("keys.check", None),
    ]
    assert found[-1]["outcome"] == "denied"
    written = b"".join(path.read_bytes() for path in harness.home.audit.iterdir())
    assert b"s3cr3t" not in written
    assert key.encode() not in written


@with_harness
async def test_the_log_goes_on_after_a_crash_and_a_change_of_it_shows(harness: Harness) -> None:
    await harness.create()
    await harness.crash()
    await harness.start()
    await harness.create()
    report = (await harness.ask("POST", "/v1/audit/verify")).json
    assert report["faults"] == []
    assert report["entries"] >= 4
    (file,) = harness.home.audit.glob("*.jsonl")
    file.write_bytes(file.read_bytes().replace(b"sandbox.created", b"sandbox.altered", 1))
    (fault,) = (await harness.ask("POST", "/v1/audit/verify")).json["faults"]
    assert (fault["kind"], fault["line"], fault["first"]) == ("changed", 1, 1)
    harness.home.audit_key.unlink()
    with pytest.raises(HostError, match="has no key"):
        audit_key(harness.home, is_old=True)


@with_harness
async def test_while_the_log_cannot_be_written_nothing_is_done(harness: Harness) -> None:
    ref = (await harness.create())["sandbox_id"]
    harness.system.acts.log.writer.behind_bytes = 1 << 30
    refused = await harness.ask("POST", f"/v1/sandboxes/{ref}/pause")
    assert (refused.status, refused.json["code"]) == (507, "no_space")
    assert (await harness.ask("GET", f"/v1/sandboxes/{ref}")).json["state"] == "running"
    harness.system.acts.log.writer.behind_bytes = 0
    assert (await harness.ask("POST", f"/v1/sandboxes/{ref}/pause")).status == 200


@pytest.mark.parametrize(
    ("method", "path", "act"),
    [
        ("POST", "/v1/sandboxes", "sandboxes.create"),
        ("POST", "/v1/sandboxes/{ref}/pause", "sandboxes.pause"),
        ("POST", "/v1/sandboxes/{ref}/services", "sandboxes.services"),
        ("DELETE", "/v1/sandboxes/{ref}/services/{name}", "sandboxes.services.delete"),
        ("PUT", "/v1/teams/{name}/quotas", "teams.quotas.replace"),
        ("POST", "/v1/secrets/{ref}", "secrets.update"),
        ("POST", "/v1/fsck", "fsck"),
        ("DELETE", "/v1/drain", "drain.delete"),
        ("GET", "/v1/sandboxes", None),
        ("POST", "/v1/sandboxes/{ref}/diff", None),
    ],
)
def test_an_act_is_named_after_its_route(method: str, path: str, act: str | None) -> None:
    assert act_of(method, path) == act


@with_harness
async def test_a_guest_that_asks_without_an_end_does_not_fill_the_log(harness: Harness) -> None:
    ref = (await harness.create())["sandbox_id"]
    for number in range(1000):
        one = EgressDecision(
            at=1.0, action="deny", rule=None, host=f"h{number}", port=443, scheme="https", count=3
        )
        harness.system.decisions.add(ref, [one])
        if number % 100 == 0:
            harness.system.decisions.flush()
    harness.system.decisions.flush()
    denied = await entries(harness, "act=egress.deny")
    assert len(denied) == 200
    assert (denied[0]["sandbox_id"], denied[0]["details"]) == (
        ref,
        {"host": "h0", "port": 443, "scheme": "https", "count": 3},
    )
    await harness.ask("DELETE", f"/v1/sandboxes/{ref}")
    (killed,) = await entries(harness, "act=sandbox.killed")
    assert killed["details"]["decisions"] == 800 * 3


@with_harness
async def test_decisions_that_are_told_after_a_kill_leave_nothing_behind(harness: Harness) -> None:
    ref = (await harness.create())["sandbox_id"]
    await harness.ask("DELETE", f"/v1/sandboxes/{ref}")
    await harness.until(lambda: not (harness.home.sandboxes / ref).exists())
    one = EgressDecision(at=1.0, action="deny", rule=None, host="late", port=443, scheme="https")
    harness.system.decisions.add(ref, [one])
    harness.system.decisions.flush()
    assert [entry["details"]["host"] for entry in await entries(harness, "act=egress.deny")] == ["late"]
    assert not harness.system.acts._paces
    assert not harness.system.acts._more


@with_harness
async def test_what_was_decided_without_a_supervisor_is_noted_with_its_time_and_in_order(
    harness: Harness,
) -> None:
    ref = (await harness.create())["sandbox_id"]
    strays = StrayDecisions(harness.system.inventory, harness.system.decisions)
    for number in range(1000):
        one = EgressDecision(
            at=5.0 + number,
            until=6.0 + number,
            action="allow",
            rule=None,
            host="same",
            port=443,
            scheme="https",
            count=2,
        )
        strays.of_edge(ref, [one])
    strays.of_edge("gone", [one])
    harness.system.decisions.flush()
    noted = await entries(harness, f"act=egress.allow&sandbox={ref}")
    assert [entry["at"] for entry in noted] == [5.0 + number for number in range(1000)]
    assert noted[7]["details"] == {"host": "same", "port": 443, "scheme": "https", "count": 2, "until": 13.0}
    assert len(await entries(harness, "act=egress.allow&sandbox=gone")) == 1
    log = (await harness.ask("GET", f"/v1/sandboxes/{ref}/egress/decisions")).json
    assert log["decisions"][-1]["until"] == 1005.0
    assert not harness.system.acts._more  # the pace of now is not touched


@with_harness
async def test_who_keeps_more_than_it_may_does_not_fill_the_log(harness: Harness) -> None:
    ref = (await harness.create())["sandbox_id"]
    harness.system.acts._kept_paces[ref] = Pace(1.0, 10, lambda: harness.boot_s)
    for number in range(500):
        one = EgressDecision(
            at=float(number),
            until=float(number),
            action="deny",
            rule=None,
            host="x",
            port=443,
            scheme="https",
        )
        harness.system.decisions.add(ref, [one])
    harness.system.decisions.flush()
    assert len(await entries(harness, "act=egress.deny")) == 10 + 200


VALUE = "s3cr3t-value/of=mail"


async def tell(harness: Harness, ref: str, *lines: dict[str, Any], dropped: int = 0) -> int:
    body = {"lines": [{"at": 5.0, **line} for line in lines], "dropped": dropped}
    return (await harness.ask("POST", f"/v1/sandboxes/{ref}/told", body, CALLER)).status


@with_harness
async def test_what_a_client_tells_is_noted_as_a_claim_without_secrets(harness: Harness) -> None:
    ref = (await harness.create())["sandbox_id"]
    assert (await harness.ask("POST", "/v1/secrets", {"name": "mail", "value": VALUE})).status == 200
    coded = base64.b64encode(f"ada:{VALUE}".encode()).decode()
    lines: list[dict[str, Any]] = [
        {"act": "command.started", "argv": ["curl", "-u", f"ada:{VALUE}", quote(VALUE, safe=""), "a b"]},
        {"act": "command.started", "line": f"echo {coded} | base64 -d", "user": "root"},
        {"act": "file.written", "path": f"/tmp/{VALUE}", "bytes": 7, "sha256": "0" * 64},
        {"act": "code.run", "line": "git clone https://ada:hunter2@example.org/x"},
    ]
    assert await tell(harness, ref, *lines) == 204
    found = await entries(harness, f"sandbox={ref}&act=command")
    assert [(entry["source"], entry["caller"]) for entry in found] == [("client", CALLER["atoll-caller"])] * 2
    assert found[0]["details"] == {
        "argv": "curl -u 'ada:[secret mail]' '[secret mail]' 'a b'",
        "at": 5.0,
    }
    assert "[secret mail]" in found[1]["details"]["line"]
    assert found[1]["details"]["user"] == "root"
    (written,) = await entries(harness, "act=file")
    assert written["details"] == {
        "path": "/tmp/[secret mail]", "bytes": 7, "sha256": "0" * 64, "at": 5.0
    }  # fmt: skip
    await harness.ask("POST", "/v1/secrets/mail", {"value": "another-value"})
    await tell(harness, ref, {"act": "command.started", "line": "echo another-value"})
    log = b"".join(path.read_bytes() for path in harness.home.audit.iterdir())
    for value in (VALUE, quote(VALUE, safe=""), coded, "another-value", "hunter2"):
        assert value.encode() not in log
    assert (await harness.ask("POST", "/v1/audit/verify")).json["faults"] == []


@with_harness
async def test_the_secrets_of_other_teams_are_not_looked_for(harness: Harness) -> None:
    """What is masked says that somebody has such a secret."""
    ref = (await harness.create())["sandbox_id"]
    await harness.ask("POST", "/v1/teams", {"name": "reef"})
    await harness.ask("POST", "/v1/secrets", {"name": "mail", "value": VALUE, "team": "reef"})
    await tell(harness, ref, {"act": "command.started", "line": f"echo {VALUE}"})
    (found,) = await entries(harness, "act=command")
    assert found["details"]["line"] == f"echo {VALUE}"


@with_harness
async def test_without_the_key_of_the_secrets_the_texts_are_withheld(harness: Harness) -> None:
    ref = (await harness.create())["sandbox_id"]
    await harness.ask("POST", "/v1/secrets", {"name": "mail", "value": VALUE})
    harness.system.secrets._vault = None
    harness.home.secrets_key.unlink()
    await tell(harness, ref, {"act": "command.started", "argv": ["echo", VALUE]})
    (found,) = await entries(harness, "act=command")
    assert "withheld" in found["details"]["argv"]
    assert VALUE not in str(found)


@with_harness
async def test_a_client_that_tells_without_an_end_does_not_fill_the_log(harness: Harness) -> None:
    ref = (await harness.create())["sandbox_id"]
    long = {"act": "command.started", "line": "x" * 16_000}
    for _ in range(10):
        assert await tell(harness, ref, *[long] * 200) == 204
    size = sum(path.stat().st_size for path in harness.home.audit.glob("*.jsonl"))
    assert size < 3 << 20
    noted = len(await entries(harness, "act=command&limit=10000"))
    assert 300 < noted < 1000
    assert await tell(harness, ref, *[long] * 201) == 400
    harness.boot_s += 100
    await tell(harness, ref, dropped=7)
    (more,) = await entries(harness, "act=client.more")
    assert more["details"] == {"count": 2000 - noted + 7}
    assert (await harness.ask("POST", "/v1/sandboxes/nobody/told", {"lines": []})).status == 404


@with_harness
async def test_odd_numbers_of_a_client_do_no_harm(harness: Harness) -> None:
    ref = (await harness.create())["sandbox_id"]
    odd = {"act": "file.read", "path": "x\x1b[2J\ud800", "bytes": -1, "sha256": "../../etc", "at": 1e300}
    assert await tell(harness, ref, odd, dropped=-5) in (204, 400)
    assert await tell(harness, ref, {**odd, "path": "x\x1b[2J"}, dropped=-5) == 204
    (found,) = await entries(harness, "act=file")
    assert found["details"] == {"path": "x\x1b[2J"}
    assert await tell(harness, ref, {"act": "sandbox.killed"}) == 400


@with_harness
async def test_the_newest_entries_are_the_newest_that_match(harness: Harness) -> None:
    for team in ("reef", "shoal"):
        await harness.ask("POST", "/v1/teams", {"name": team})
    first = (await harness.ask("POST", "/v1/sandboxes", {"team": "reef"})).json["sandbox_id"]
    await harness.ask("POST", "/v1/sandboxes", {"team": "shoal"})
    one = EgressDecision(at=1.0, action="deny", rule=None, host="x", port=443, scheme="https")
    harness.system.decisions.add(first, [one], None, "reef")
    harness.system.decisions.flush()
    found = await entries(harness, "team=reef&newest=3")
    assert [entry["act"] for entry in found] == ["sandbox.created", "sandboxes.create", "egress.deny"]
    assert {entry["team"] for entry in found} == {"reef"}
    assert (await harness.ask("GET", "/v1/audit?team=reef&newest=1")).json["next"] == 7
    assert await entries(harness, "team=reef&newest=0") == []
    assert [entry["act"] for entry in await entries(harness, "team=shoal&act=sandboxes")] == [
        "sandboxes.create"
    ]


@with_harness
async def test_each_new_head_goes_to_the_command_and_vouches_for_the_log(harness: Harness) -> None:
    kept = harness.home.path / "anchors"
    log = harness.system.acts.log
    anchoring = AuditAnchoring(["sh", "-c", 'cat >>"$0"', str(kept)], log.anchor)
    await harness.create()
    await harness.until(lambda: (anchor := log.anchor()) is not None and anchor.sequence == log.sequence)
    for _ in range(3):
        await anchoring.give()
    (anchor,) = read_anchors(kept)
    assert anchor.sequence == log.sequence
    body = {"anchors": [msgspec.to_builtins(anchor)]}
    report = (await harness.ask("POST", "/v1/audit/verify", body)).json
    assert (report["anchored"], report["faults"]) == (anchor.sequence, [])
    assert (
        await harness.ask("POST", "/v1/audit/verify", {"anchors": body["anchors"] * 10_001})
    ).status == 400
    assert await entries(harness, "act=audit") == []


@with_harness
async def test_the_last_head_goes_to_the_command_at_the_end(harness: Harness) -> None:
    kept = harness.home.path / "anchors"
    harness.system._anchoring.argv = ["sh", "-c", 'cat >>"$0"', str(kept)]
    await harness.create()
    await harness.aclose()
    (anchor,) = read_anchors(kept)
    assert anchor.sequence == harness.system.acts.log.sequence > 0
    await harness.start()


def test_a_command_that_hangs_does_not_keep_the_supervisor_from_ending() -> None:
    anchoring = AuditAnchoring(["sleep", "1000"], lambda: AuditAnchor(1, "0" * 64, "0" * 64))

    async def end() -> None:
        with patch("atoll.supervisor.monitors.audit_anchor._LAST_S", 0.01):
            await anchoring.finish()

    asyncio.run(end())


@with_harness
async def test_while_a_disk_hangs_acts_go_on_and_requests_are_refused(harness: Harness) -> None:
    log, told = harness.system.acts.log, list[bool]()
    AuditLateness(log, told.append).start()
    AuditLateness(log, None).look()
    ref = (await harness.create())["sandbox_id"]
    goes_on = threading.Event()
    real = os.write

    def write(fd: int, data: bytes) -> int:
        if threading.current_thread().name == "audit writes":
            goes_on.wait(60)
        return real(fd, data)

    with patch("os.write", write):
        assert (await harness.ask("POST", f"/v1/sandboxes/{ref}/pause")).status == 200
        await harness.until(lambda: told == [True])
        assert (await harness.ask("POST", f"/v1/sandboxes/{ref}/resume")).status == 200
        assert await entries(harness, "act=sandboxes.pause") == []
        goes_on.set()
        await harness.until(lambda: told == [True, False])
    assert len(await entries(harness, "act=sandboxes.pause")) == 1


def test_what_becomes_of_requests_while_the_log_is_late_is_a_setting() -> None:
    assert read_settings({}).audit_late == "refuse"
    assert read_settings({"ATOLL_AUDIT_LATE": "go-on"}).audit_late == "go-on"
    with pytest.raises(InvalidSpecError, match="ATOLL_AUDIT_LATE is 'wait'"):
        read_settings({"ATOLL_AUDIT_LATE": "wait"})


def test_a_command_that_fails_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    heads = iter(AuditAnchor(number, "0" * 64, "0" * 64) for number in range(1, 9))

    async def thrice(anchoring: AuditAnchoring) -> None:
        for _ in range(3):
            await anchoring.give()

    for argv in (["/no/such/command"], ["sh", "-c", "echo no room >&2; exit 3"]):
        caplog.clear()
        asyncio.run(thrice(AuditAnchoring(argv, lambda: next(heads))))
        assert len(caplog.records) == 1
    assert "ended with 3: no room" in caplog.text


def test_anchors_are_read_and_the_oldest_are_thinned(tmp_path: Path) -> None:
    path = tmp_path / "anchors"
    lines = [
        msgspec.json.encode({"sequence": n, "digest": "d", "mac": "m", "at": 1}) for n in range(1, 30_001)
    ]
    path.write_bytes(b"\n".join(lines) + b'\n\n{"sequ')
    found = [anchor.sequence for anchor in read_anchors(path)]
    assert len(found) <= 10_000
    assert found == sorted(set(found))
    assert (found[0], found[-5000:]) == (1, list(range(25_001, 30_001)))
    path.write_bytes(lines[0] + b"\nrubbish\n")
    with pytest.raises(InvalidSpecError, match="line 2 of"):
        read_anchors(path)


def test_the_command_of_the_anchors_is_read_as_a_shell_would() -> None:
    settings = read_settings({"ATOLL_AUDIT_ANCHOR": "ssh log@store 'cat >>anchors'"})
    assert settings.anchor_argv() == ["ssh", "log@store", "cat >>anchors"]
    assert read_settings({}).anchor_argv() == []
    with pytest.raises(InvalidSpecError, match="ATOLL_AUDIT_ANCHOR"):
        read_settings({"ATOLL_AUDIT_ANCHOR": "ssh 'x"})
    with pytest.raises(InvalidSpecError, match="ATOLL_AUDIT_CLIENTS"):
        read_settings({"ATOLL_AUDIT_CLIENTS": "maybe"})
