"""Sends a span of each request that belongs to a client's trace, by the extra ``atoll[otel]``."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from atoll.protocol import TRACE_HEADERS, span_attributes, span_name
from atoll.version import __version__

MISSING = "ATOLL_OTEL_ENDPOINT is set, but OpenTelemetry's exporter is not installed"
MISSING_HINT = "pip install 'atoll[otel]', for the Python that runs atoll"
_END_MS = 2000
_log = logging.getLogger(__name__)


def is_installed() -> bool:
    """Whether spans can be sent."""
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """Where a span belongs that somebody else has measured, and its time in Unix nanoseconds."""

    trace: str
    parent: str
    began_ns: int
    ended_ns: int


class Tracing:
    """Spans of requests, sent to a collector in the background. A collector that does not answer delays nothing.

    Args:
        endpoint: Where the collector takes traces by OTLP over HTTP, as ``http://HOST:4318/v1/traces``.
    """

    def __init__(self, endpoint: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        # Nobody waits for it at the end for longer than this.
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_END_MS / 1000)
        resource = Resource({"service.name": "atoll", "service.version": __version__})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=500))
        self._tracer = self._provider.get_tracer("atoll")

    def around(self, app: ASGIApp) -> ASGIApp:
        """The application, with a span around each request whose client traces itself."""

        async def traced(scope: Scope, receive: Receive, send: Send) -> None:
            carrier = _carrier_of(scope)
            if not carrier:
                await app(scope, receive, send)
                return
            with self._span(scope, carrier) as span:

                async def noting(message: Message) -> None:
                    if message["type"] == "http.response.start":
                        _note(span, message["status"])
                    await send(message)

                await app(scope, receive, noting)

        return traced

    def _span(self, scope: Scope, carrier: dict[str, str]) -> Any:
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        method, path = scope["method"], scope["path"]
        return self._tracer.start_as_current_span(
            span_name(method, path),
            context=TraceContextTextMapPropagator().extract(carrier),
            kind=SpanKind.SERVER,
            attributes=span_attributes(method, path),
            record_exception=False,
        )

    def record(self, name: str, of: Recorded, attributes: Mapping[str, str | int | bool]) -> None:
        """Send a span of something that has ended."""
        from opentelemetry.trace import (
            NonRecordingSpan,
            SpanContext,
            SpanKind,
            Status,
            StatusCode,
            TraceFlags,
            set_span_in_context,
        )

        flags = TraceFlags(TraceFlags.SAMPLED)
        parent = SpanContext(int(of.trace, 16), int(of.parent, 16), is_remote=True, trace_flags=flags)
        span = self._tracer.start_span(
            name,
            context=set_span_in_context(NonRecordingSpan(parent)),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=of.began_ns,
        )
        if "error.type" in attributes:
            span.set_status(Status(StatusCode.ERROR))
        span.end(of.ended_ns)

    def close(self) -> None:
        """Send what waits, for two seconds at most. Blocks."""
        self._provider.force_flush(_END_MS)
        self._provider.shutdown()


def tracing_to(endpoint: str) -> Tracing | None:
    """The traces for a collector; None without one, or without what is needed."""
    if not endpoint:
        return None
    if not is_installed():
        _log.error("%s: %s", MISSING, MISSING_HINT)
        return None
    return Tracing(endpoint)


def _note(span: Any, status: int) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(Status(StatusCode.ERROR))


def _carrier_of(scope: Scope) -> dict[str, str]:
    if scope["type"] != "http":
        return {}
    named = {name: value for name, value in scope["headers"] if name.decode("latin-1") in TRACE_HEADERS}
    found = {name.decode("latin-1"): value.decode("latin-1") for name, value in named.items()}
    return found if "traceparent" in found else {}
