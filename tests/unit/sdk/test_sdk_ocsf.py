"""Entries of the audit log as OCSF events."""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from atoll import Audit
from atoll.sdk._ocsf import OCSF_VERSION
from atoll.types import AuditEntry

SCHEMA = OcsfJsonSchemaEmbedded(get_ocsf_schema(version=OCSF_VERSION))
ID = "d96jevrasmsrost9ugjf"
EGRESS = {"host": "example.org", "port": 443, "scheme": "https", "rule": 2, "count": 3}


@cache
def validator(class_uid: int, profiles: tuple[str, ...]) -> jsonschema.Draft202012Validator:
    name = SCHEMA.lookup_class_name_from_uid(class_uid=class_uid)
    return jsonschema.Draft202012Validator(SCHEMA.get_class_schema(class_name=name, profiles=list(profiles)))


def checked(entry: AuditEntry) -> dict[str, Any]:
    event = msgspec.json.decode(msgspec.json.encode(Audit.ocsf(entry)))  # noqa: TID251
    found: dict[str, Any] = event
    profiles = tuple(found["metadata"].get("profiles", ()))
    errors = [error.message for error in validator(found["class_uid"], profiles).iter_errors(found)]
    assert errors == [], found
    return found


def entry(act: str, **fields: Any) -> AuditEntry:
    return AuditEntry(sequence=7, at=1.5, act=act, **{"sandbox_id": ID, "caller": "run.py", **fields})


@pytest.mark.parametrize(
    ("one", "type_uid"),
    [
        (entry("sandboxes.create", team="reef", details={"name": "work"}), 600301),
        (entry("sandboxes.delete", outcome="sandbox_not_found"), 600304),
        (entry("secrets.update", sandbox_id=None, details={"ref": "mail"}), 600303),
        (entry("sandboxes.pause", delegation="dlg-1"), 600399),
        (entry("snapshot.created", details={"snapshot": "x", "automatic": 0}), 600399),
        (entry("ask.denied", details={"ask": "x", "reason": "no", "passed": 0}), 600399),
        (entry("model.called", details={"model": "gpt-5-mini", "input": 2, "usd": 0.1}), 600399),
        (entry("audit.removed", sandbox_id=None, caller=None, details={"through": 9}), 600399),
        (entry("egress.more", details={"count": 9}), 600399),
        (entry("client.more", details={"count": 9}), 600399),
        (entry("sandbox.created", caller=None, details={"image": "base", "until": None}), 600201),
        (entry("sandbox.killed"), 600202),
        (entry("sandbox.woken"), 600203),
        (entry("sandbox.crashed", details={"reason": "memory"}), 600204),
        (entry("sandbox.changed", details={"network": "{}"}), 600208),
        (entry("keys.check", sandbox_id=None, outcome="denied"), 300201),
        (entry("command.started", source="client", details={"argv": "ls -l", "user": "root"}), 100701),
        (entry("code.run", source="client", details={"line": "1 + 1", "at": 1.25}), 100701),
        (entry("file.read", details={"path": "/a/b", "bytes": 5, "sha256": "0" * 64}), 100102),
        (entry("file.written", details={"path": "/a/", "bytes": 5}), 100103),
        (entry("egress.allow", details={**EGRESS, "method": "POST", "path": "/x", "secrets": "k"}), 400206),
        (entry("egress.deny", details={**EGRESS, "reason": "no rule"}), 400105),
        (entry("egress.deny", details={"host": "::1", "port": 0, "observed": True}), 400101),
        (entry("egress.deny", details={"host": "a.b", "scheme": "dns", "method": "A"}), 400105),
        (entry("egress.ask", details={**EGRESS, "method": "GET"}), 400203),
    ],
)
def test_an_entry_is_a_valid_event_of_its_class(one: AuditEntry, type_uid: int) -> None:
    event = checked(one)
    assert event["type_uid"] == type_uid
    assert (event["time"], event["metadata"]["sequence"], event["metadata"]["event_code"]) == (
        1500,
        7,
        one.act,
    )


def test_an_event_has_all_that_its_entry_has() -> None:
    event = checked(entry("egress.allow", details={**EGRESS, "method": "POST", "path": "/x", "secrets": "k"}))
    assert event["dst_endpoint"] == {"hostname": "example.org", "port": 443}
    assert event["http_request"]["url"]["path"] == "/x"
    assert (event["firewall_rule"], event["count"], event["action_id"]) == ({"uid": "2"}, 3, 1)
    assert event["unmapped"] == {"secrets": "k", "sandbox": ID}
    event = checked(entry("sandboxes.delete", team="reef", delegation="dlg-1", outcome="in_use"))
    assert (event["status_id"], event["status_code"]) == (2, "in_use")
    assert event["metadata"]["tenant_uid"] == "reef"
    assert event["unmapped"]["delegation"] == "dlg-1"


ACTS = [
    "file.read",
    "command.started",
    "egress.allow",
    "egress.deny",
    "sandbox.odd",
    "x",
    "keys.check",
    "a.b",
]
NAMES = ["host", "port", "method", "scheme", "path", "bytes", "line", "user", "rule", "count", "name", "ref"]
VALUES = st.one_of(st.text(max_size=9), st.integers(-(2**60), 2**60), st.none())


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(ACTS), st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6))
def test_whatever_a_line_claims_is_a_valid_event(act: str, details: dict[str, Any]) -> None:
    checked(entry(act, details=details))


def test_a_request_to_a_model_has_the_names_of_opentelemetry() -> None:
    told = {"provider": "openai", "model": "gpt-5-mini", "input": 2, "cache_read": 1, "usd": 0.1}
    assert checked(entry("model.called", details=told))["unmapped"] == {
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5-mini",
        "gen_ai.usage.cache_read.input_tokens": 1,
        "gen_ai.usage.input_tokens": 3,
        "usd": 0.1,
        "sandbox": ID,
    }
