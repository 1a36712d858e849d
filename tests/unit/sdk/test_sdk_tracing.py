"""Spans of programs that trace themselves."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from atoll.errors import NoSpaceError
from atoll.guest import ProcessEnd, Program
from atoll.sdk import _tracing
from atoll.sdk._telling import program_line


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What the program records. The provider of a process can be set only once, so another one is shown here."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    with trace.get_tracer("test").start_as_current_span("answer a question"):
        yield exporter
    provider.shutdown()


def test_a_call_carries_its_span_and_a_failure_says_its_code_only(spans: InMemorySpanExporter) -> None:
    with _tracing.calling("POST", "/v1/sandboxes/sb-1/fork") as span:
        span.answered(200)
        headers = dict(span.headers)
    with pytest.raises(NoSpaceError), _tracing.calling("GET", "/v1/images"):
        raise NoSpaceError("a secret text")
    forked, failed = spans.get_finished_spans()
    assert (forked.name, failed.name) == ("POST sandboxes/fork", "GET images")
    assert dict(forked.attributes or {}) == {
        "http.request.method": "POST",
        "url.path": "/v1/sandboxes/sb-1/fork",
        "atoll.sandbox": "sb-1",
        "http.response.status_code": 200,
    }
    assert headers["traceparent"].startswith(f"00-{_hex(forked)}-")
    assert (failed.attributes or {})["error.type"] == NoSpaceError.code
    assert "secret" not in failed.to_json()


def test_a_program_finds_the_trace_in_its_variables_and_keeps_its_own(spans: InMemorySpanExporter) -> None:
    program = Program(argv=("/bin/echo", "a secret"), env={"A": "1"})
    with _tracing.running("sb-1", program) as traced:
        pass
    process, call = spans.get_finished_spans()
    assert traced.program.env["TRACEPARENT"].startswith(f"00-{_hex(process)}-")
    assert traced.program.env["A"] == "1"
    assert dict(call.attributes or {}) == {"atoll.sandbox": "sb-1", "process.executable.name": "echo"}
    mine = Program(line="env", env={"TRACEPARENT": "mine"})
    with _tracing.running("sb-1", mine) as traced:
        assert traced.program.env == {"TRACEPARENT": "mine"}


def test_a_program_has_a_span_within_the_call_that_says_what_the_agent_said(
    spans: InMemorySpanExporter,
) -> None:
    with _tracing.running("sb-1", Program(line="exit 3")) as traced:
        traced.started(42)
        traced.ended(ProcessEnd(exit_code=3))
    process, call = spans.get_finished_spans()
    assert (process.name, call.name) == ("process", "exec")
    assert process.parent is not None
    assert f"{process.parent.trace_id:032x}-{process.parent.span_id:016x}" == _hex(call)
    assert dict(process.attributes or {}) == {
        "atoll.sandbox": "sb-1",
        "process.pid": 42,
        "process.exit.code": 3,
    }
    assert [event.name for event in process.events] == ["process.started", "process.ended"]
    assert process.status.is_ok


def test_the_start_of_a_program_that_runs_on_is_a_span_that_ends_with_it(spans: InMemorySpanExporter) -> None:
    with _tracing.starting("sb-1", Program(argv=("/bin/sleep", "9"), env={"A": "1"})) as traced:
        traced.started(42)
    (span,) = spans.get_finished_spans()
    assert span.name == "start"
    assert traced.program.env["TRACEPARENT"].startswith(f"00-{_hex(span)}-")
    assert dict(span.attributes or {}) == {
        "atoll.sandbox": "sb-1",
        "process.executable.name": "sleep",
        "process.pid": 42,
    }


def test_a_program_that_cannot_start_ends_both_spans_with_the_code_of_the_error(
    spans: InMemorySpanExporter,
) -> None:
    with pytest.raises(NoSpaceError), _tracing.running("sb-1", Program(line="true")):
        raise NoSpaceError("a secret text")
    for span in spans.get_finished_spans():
        assert (span.attributes or {})["error.type"] == NoSpaceError.code
        assert "secret" not in span.to_json()


def test_the_supervisor_hears_which_trace_a_program_was_given() -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    env = {"TRACEPARENT": f"00-{trace}-b7ad6b7169203331-01"}
    assert program_line(Program(line="true", env=env)).trace == trace
    assert program_line(Program(line="true", env={"TRACEPARENT": "mine"})).trace is None
    assert program_line(Program(line="true")).trace is None


def test_a_program_without_opentelemetry_gets_no_span(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    program = Program(line="true")
    with _tracing.calling("GET", "/v1/images") as span, _tracing.running("sb-1", program) as traced:
        traced.started(1)
        traced.ended(ProcessEnd(exit_code=0))
        assert (span.headers, traced.program) == ((), program)
    with _tracing.starting("sb-1", program) as traced:
        assert traced.program is program
    assert not spans.get_finished_spans()


def test_a_call_outside_a_trace_begins_none(spans: InMemorySpanExporter) -> None:
    with trace.use_span(trace.INVALID_SPAN), _tracing.calling("GET", "/v1/images") as span:
        assert span.headers == ()
    assert not spans.get_finished_spans()


def _hex(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}-{context.span_id:016x}"
