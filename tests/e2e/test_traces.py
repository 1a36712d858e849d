"""One trace from a program's call through the supervisor to the command inside, and to what that sends."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.collector import Collector, collecting
from tests.waiting import until

from atoll import Sandbox
from atoll.types import HOST_NAME, Policy, Rule

OTHER = "1" * 32
ASK = (
    "echo $TRACEPARENT; for trace in $TRACEPARENT 00-{other}-{parent}-01; do"
    ' curl -sS -m 20 -o /dev/null -H "traceparent: $trace" http://{host}:{port}/ ; done'
)


def test_a_trace_reaches_the_supervisor_the_command_and_its_requests(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del home
    provider, kept = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    with collecting() as collector:
        monkeypatch.setenv("ATOLL_OTEL_ENDPOINT", collector.endpoint)
        rule = Rule(name="reads", hosts=(HOST_NAME,), ports=(collector.server_port,), methods=("GET",))
        with trace.get_tracer("test").start_as_current_span("answer a question") as span:
            with Sandbox.create(network=Policy(rules=(rule,))) as sandbox:
                ask = ASK.format(
                    other=OTHER, parent="b7ad6b7169203331", host=HOST_NAME, port=collector.server_port
                )
                inside = sandbox.run(ask).stdout
                sandbox.processes.start("true").wait()
                until(lambda: "egress GET" in _names(collector))
        found = f"{span.get_span_context().trace_id:032x}"
        wanted = {"POST sandboxes", "egress GET", "DELETE sandboxes"}
        until(lambda: wanted <= _names(collector))
        # the command's request of another trace is in no trace
        assert {each.trace_id.hex() for each in collector.spans} == {found}
        created = next(each for each in collector.spans if each.name == "POST sandboxes")
        sent = next(each for each in collector.spans if each.name == "egress GET")
        own = {f"{each.context.span_id:016x}": each for each in kept.get_finished_spans() if each.context}
        assert own[created.parent_span_id.hex()].name == "POST sandboxes"
        process = own[sent.parent_span_id.hex()]
        assert process.name == "process"
        assert process.parent is not None
        assert own[f"{process.parent.span_id:016x}"].name == "exec"
        assert inside.split()[0].split("-")[1:3] == [found, sent.parent_span_id.hex()]
        start = next(each for each in own.values() if each.name == "start")
        assert (start.attributes or {})["process.pid"]
        values = {each.key: each.value.string_value or each.value.int_value for each in sent.attributes}
        assert (values["atoll.egress.rule"], values["http.response.status_code"]) == ("reads", 200)


def _names(collector: Collector) -> set[str]:
    return {each.name for each in collector.spans}
