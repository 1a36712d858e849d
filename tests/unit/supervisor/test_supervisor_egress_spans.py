"""Spans of requests from inside: only for traces of the sandbox's own clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from atoll.network import EdgeSpan, ModelSpan, ModelUsage
from atoll.network.edge_spans import SpanTalk
from atoll.supervisor.lifecycle.egress_spans import EgressSpans
from atoll.supervisor.tracing import Recorded, tracing_to
from tests.collector import Collector, collecting
from tests.unit.supervisor.harness import Harness, with_harness

TRACE, OTHER, PARENT = "0af7651916cd43dd8448eb211c80319c", "1" * 32, "b7ad6b7169203331"
TOLD: dict[str, Any] = {
    "trace": TRACE, "parent": PARENT, "began_us": 1_700_000_000_000_000, "took_us": 250_000, "method": "GET",
    "scheme": "https", "host": "api.example", "port": 443, "status": 200, "action": "allow", "rule": "reads",
    "sent_bytes": 3, "received_bytes": 5, "error": "", "model": None,
}  # fmt: skip


class Sent:
    """Spans as they are sent, and a clock."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.attributes: list[Mapping[str, str | int | bool]] = []
        self.traces: list[str] = []
        self.now_s = 0.0
        self.spans = EgressSpans(self._record, lambda: self.now_s)

    def _record(self, name: str, of: Recorded, attributes: Mapping[str, str | int | bool]) -> None:
        self.names.append(name)
        self.traces.append(of.trace)
        self.attributes.append(attributes)


@pytest.fixture
def sent() -> Sent:
    return Sent()


def _span(**changes: Any) -> EdgeSpan:
    told = {**TOLD, **changes}
    return EdgeSpan(**told)


def test_only_a_trace_that_a_client_gave_to_this_sandbox_is_sent(sent: Sent) -> None:
    sent.spans.told("sb-1", TRACE)
    sent.spans.heard("sb-1", [_span(), _span(trace=OTHER)])
    sent.spans.heard("sb-2", [_span()])
    assert sent.traces == [TRACE]
    assert sent.names == ["egress GET"]


def test_a_span_that_comes_before_its_client_waits_for_ten_seconds(sent: Sent) -> None:
    sent.spans.heard("sb-1", [_span(method="PUT"), _span(trace=OTHER)])
    sent.now_s = 9
    sent.spans.told("sb-1", TRACE)
    assert sent.names == ["egress PUT"]
    sent.now_s = 11
    sent.spans.told("sb-1", OTHER)
    assert sent.names == ["egress PUT"]


def test_a_flood_of_traces_is_forgotten_and_costs_no_other_sandbox_its_own(sent: Sent) -> None:
    sent.spans.told("sb-1", TRACE)
    for number in range(100):
        sent.spans.told("sb-2", f"{number + 1:032x}")
    for _ in range(100):
        sent.spans.heard("sb-2", [_span(trace=OTHER)] * 50)
    sent.spans.heard("sb-2", [_span(trace=f"{1:032x}"), _span(trace=f"{100:032x}")])
    sent.spans.heard("sb-1", [_span()])
    assert sent.traces == [f"{100:032x}", TRACE]
    sent.spans.told("sb-2", OTHER)
    assert sent.traces.count(OTHER) <= 100


def test_a_refused_request_says_its_code_and_odd_texts_do_no_harm(sent: Sent) -> None:
    sent.spans.told("sb-1", TRACE)
    refused = _span(
        method="EV\x1bIL", host="a\x1b[2J", status=403, action="deny", error="egress_denied", rule=""
    )
    sent.spans.heard("sb-1", [refused, _span(status=0, error="aborted"), _span(status=500)])
    assert sent.names[0] == "egress _OTHER"
    assert sent.attributes[0] == {
        "atoll.sandbox": "sb-1", "http.request.method": "_OTHER", "url.scheme": "https", "server.address": "a?[2J",
        "server.port": 443, "http.request.body.size": 3, "http.response.body.size": 5,
        "http.response.status_code": 403, "atoll.egress.action": "deny", "error.type": "egress_denied",
    }  # fmt: skip
    assert sent.attributes[1]["error.type"] == "aborted"
    assert sent.attributes[2]["error.type"] == "500"


def test_a_request_to_a_model_has_the_names_of_opentelemetry(sent: Sent) -> None:
    sent.spans.told("sb-1", TRACE)
    usage = ModelUsage(input=60, cache_read=40, output=20)
    model = ModelSpan(
        operation="chat",
        asked="cheap",
        provider="mine",
        dialect="openai",
        name="small",
        usage=usage,
        estimated=False,
    )
    sent.spans.heard("sb-1", [_span(model=model, action="", rule="")])
    assert sent.names == ["chat cheap"]
    found = sent.attributes[0]
    assert {name: value for name, value in found.items() if name.startswith(("gen_ai", "atoll"))} == {
        "atoll.sandbox": "sb-1", "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "cheap", "gen_ai.response.model": "small", "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20, "gen_ai.usage.cache_read.input_tokens": 40,
        "gen_ai.usage.cache_creation.input_tokens": 0, "atoll.provider": "mine", "atoll.estimated": False,
    }  # fmt: skip


def test_what_the_edge_says_is_checked() -> None:
    heard: list[tuple[str, int]] = []
    talk = SpanTalk()
    talk.handle({"sandbox": "sb-1", "spans": [TOLD]})
    assert not talk.is_wanted
    talk.listener = lambda sandbox_id, spans: heard.append((sandbox_id, len(spans)))
    talk.handle({"sandbox": "sb-1", "spans": [TOLD, TOLD]})
    assert heard == [("sb-1", 2)]
    for wrong in ({"trace": "x" * 32}, {"parent": PARENT + "0"}, {"began_us": -1}, {"took_us": 1 << 60}):
        with pytest.raises(ValueError, match="."):
            talk.handle({"sandbox": "sb-1", "spans": [{**TOLD, **wrong}]})


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


def test_a_measured_span_arrives_with_its_times_in_its_place(collector: Collector) -> None:
    tracing = tracing_to(collector.endpoint)
    assert tracing is not None
    spans = EgressSpans(tracing.record, lambda: 0.0)
    spans.told("sb-1", TRACE)
    spans.heard("sb-1", [_span(status=403, error="egress_denied")])
    tracing.close()
    (span,) = collector.spans
    assert (span.name, span.kind) == ("egress GET", Span.SPAN_KIND_CLIENT)
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert span.start_time_unix_nano == 1_700_000_000_000_000_000
    assert span.end_time_unix_nano - span.start_time_unix_nano == 250_000_000
    assert span.status.code == Status.STATUS_CODE_ERROR


@with_harness
async def test_clients_say_which_trace_a_program_was_given_and_the_log_has_it_not(harness: Harness) -> None:
    heard: list[tuple[str, str]] = []
    harness.system.client_lines.traced = lambda sandbox_id, trace: heard.append((sandbox_id, trace))
    ref = (await harness.create())["sandbox_id"]
    path, line = f"/v1/sandboxes/{ref}/told", {"act": "command.started", "at": 5.0, "line": "true"}
    body = {"lines": [{**line, "trace": TRACE}, {**line, "trace": TRACE}, line]}
    assert (await harness.ask("POST", path, body)).status == 204
    assert heard == [(ref, TRACE)]
    assert (await harness.ask("POST", path, {"lines": [{**line, "trace": "../x"}]})).status == 400
    log = b"".join(path.read_bytes() for path in harness.home.audit.iterdir())
    assert TRACE.encode() not in log
