"""Spans of requests that belong to a client's trace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from atoll.supervisor import tracing
from atoll.supervisor.doctor import trace_findings
from atoll.supervisor.settings import Settings
from atoll.supervisor.tracing import tracing_to
from tests.collector import Collector, collecting

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


def _asked(endpoint: str, *headers: tuple[bytes, bytes], status: int = 200, path: str = "/v1/images") -> int:
    """Ask an application once, and return how many messages of its answer came."""
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def ask(traced: ASGIApp) -> None:
        await traced({"type": "http", "method": "POST", "path": path, "headers": [*headers]}, receive, send)

    made = tracing_to(endpoint)
    assert made is not None
    asyncio.run(ask(made.around(app)))
    made.close()
    return len(sent)


def test_a_request_of_a_trace_is_a_child_in_it(collector: Collector) -> None:
    fork = "/v1/sandboxes/sb-1/fork"
    assert _asked(collector.endpoint, (b"traceparent", PARENT), path=fork) == 2
    (span,) = collector.spans
    assert (span.name, span.kind) == ("POST sandboxes/fork", Span.SPAN_KIND_SERVER)
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (
        "0af7651916cd43dd8448eb211c80319c",
        "b7ad6b7169203331",
    )
    values = {each.key: each.value.string_value or each.value.int_value for each in span.attributes}
    assert values == {
        "http.request.method": "POST",
        "url.path": fork,
        "atoll.sandbox": "sb-1",
        "http.response.status_code": 200,
    }


def test_a_fault_of_atoll_is_marked(collector: Collector) -> None:
    _asked(collector.endpoint, (b"traceparent", PARENT), status=500)
    assert collector.spans[0].status.code == Status.STATUS_CODE_ERROR


def test_other_requests_have_no_span(collector: Collector) -> None:
    assert _asked(collector.endpoint) == 2
    assert _asked(collector.endpoint, (b"tracestate", b"a=b")) == 2
    assert collector.spans == []


def test_a_collector_that_does_not_answer_costs_the_request_nothing() -> None:
    assert _asked("http://127.0.0.1:1/v1/traces", (b"traceparent", PARENT)) == 2


def test_the_doctor_says_whether_spans_can_be_sent() -> None:
    assert tracing_to("") is None
    assert trace_findings(Settings()) == []
    wanted = Settings(otel_endpoint="http://collector:4318/v1/traces")
    assert [each.level for each in trace_findings(wanted)] == ["ok"]
    with patch.object(tracing, "is_installed", return_value=False):
        assert tracing_to(wanted.otel_endpoint) is None
        (finding,) = trace_findings(wanted)
    assert (finding.level, finding.message) == ("warning", tracing.MISSING)
