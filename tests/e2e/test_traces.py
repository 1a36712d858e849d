"""One trace from a program's call through the supervisor to the command inside."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from tests.collector import collecting
from tests.waiting import until

from atoll import Sandbox


def test_a_trace_reaches_the_supervisor_and_the_command(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del home
    provider = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    with collecting() as collector:
        monkeypatch.setenv("ATOLL_OTEL_ENDPOINT", collector.endpoint)
        with trace.get_tracer("test").start_as_current_span("answer a question") as span:
            with Sandbox.create() as sandbox:
                inside = sandbox.run("echo $TRACEPARENT").stdout
        found = f"{span.get_span_context().trace_id:032x}"
        assert inside.split("-")[1] == found
        wanted = {"POST sandboxes", "DELETE sandboxes"}
        until(lambda: wanted <= {each.name for each in collector.spans})
        assert {each.trace_id.hex() for each in collector.spans} == {found}
        created = next(each for each in collector.spans if each.name == "POST sandboxes")
        assert created.parent_span_id not in (b"", span.get_span_context().span_id.to_bytes(8, "big"))
