"""Spans for programs that trace themselves with OpenTelemetry.

Only a program that has imported OpenTelemetry gets spans, and only if it records the trace that it is in. All others
pay a look into ``sys.modules`` for a call.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from atoll.errors import AtollError
from atoll.guest import Program
from atoll.protocol import span_attributes, span_name

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanKind

    from atoll.guest import ProcessEnd

_OURS = "atoll"
# The names that instrumented programs read a trace from.
_VARIABLES = {"traceparent": "TRACEPARENT", "tracestate": "TRACESTATE"}


@dataclass(eq=False)
class CallSpan:
    """The span of a call; without one, nothing.

    Attributes:
        headers: What the request carries, so that the other side can go on with the trace.
    """

    headers: tuple[tuple[str, str], ...] = ()
    _span: Span | None = field(default=None, repr=False)

    def answered(self, status: int) -> None:
        """Note the status of the answer."""
        if self._span is not None:
            self._span.set_attribute("http.response.status_code", status)


_NOTHING = CallSpan()


@dataclass(eq=False)
class ProcessSpan:
    """The span of a program; without one, nothing. It says of the program what the agent does.

    Attributes:
        program: The program, with the trace in its variables.
    """

    program: Program
    _span: Span | None = field(default=None, repr=False)

    def started(self, pid: int) -> None:
        """Note that the program runs."""
        if self._span is not None:
            self._span.set_attribute("process.pid", pid)
            self._span.add_event("process.started")

    def ended(self, end: ProcessEnd) -> None:
        """Note how the program has ended."""
        if self._span is None:
            return
        self._span.set_attribute("process.exit.code", end.exit_code)
        if end.signal:
            self._span.set_attribute("atoll.signal", end.signal)
        if end.memory_kill is not None:
            self._span.set_attribute("atoll.memory_kill", True)
        self._span.add_event("process.ended")


@contextlib.contextmanager
def calling(method: str, path: str) -> Iterator[CallSpan]:
    """Have the span of a call to the supervisor or a server last as long as the context."""
    if not _is_traced():
        yield _NOTHING
        return
    with _recorded(span_name(method, path), span_attributes(method, path)) as span:
        yield CallSpan(tuple(_carrier().items()), span)


@contextlib.contextmanager
def running(sandbox_id: str, program: Program) -> Iterator[ProcessSpan]:
    """Have the spans of a call and of its program last as long as the context.

    They have no arguments: these may hold what nobody else is to read.
    """
    if not _is_traced():
        yield ProcessSpan(program)
        return
    from opentelemetry.trace import SpanKind

    # The program is told its span's id before it starts, so its span begins when the agent is asked to start it.
    with (
        _recorded("exec", _attributes(sandbox_id, program)),
        _recorded("process", {"atoll.sandbox": sandbox_id}, SpanKind.INTERNAL) as span,
    ):
        yield ProcessSpan(_told_of_trace(program), span)


@contextlib.contextmanager
def starting(sandbox_id: str, program: Program) -> Iterator[ProcessSpan]:
    """Have the span of the start of a program last as long as the context. The program may run on after it."""
    if not _is_traced():
        yield ProcessSpan(program)
        return
    with _recorded("start", _attributes(sandbox_id, program)) as span:
        yield ProcessSpan(_told_of_trace(program), span)


def _attributes(sandbox_id: str, program: Program) -> dict[str, str]:
    attributes = {"atoll.sandbox": sandbox_id}
    if program.argv:
        attributes["process.executable.name"] = program.argv[0].rpartition("/")[2]
    return attributes


def _told_of_trace(program: Program) -> Program:
    traced = {_VARIABLES[name]: value for name, value in _carrier().items() if name in _VARIABLES}
    return msgspec.structs.replace(program, env={**traced, **program.env})


def _is_traced() -> bool:
    module = sys.modules.get("opentelemetry.trace")
    # A call outside any trace, such as one of a background thread, would begin a trace of its own.
    return module is not None and module.get_current_span().is_recording()


@contextlib.contextmanager
def _recorded(name: str, attributes: Mapping[str, str], kind: SpanKind | None = None) -> Iterator[Span]:
    from opentelemetry.trace import SpanKind, Status, StatusCode, get_tracer

    tracer = get_tracer(_OURS)
    with tracer.start_as_current_span(
        name,
        kind=SpanKind.CLIENT if kind is None else kind,
        attributes=dict(attributes),
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except BaseException as error:
            # The text of an error may quote what the program said.
            span.set_attribute(
                "error.type", error.code if isinstance(error, AtollError) else type(error).__name__
            )
            span.set_status(Status(StatusCode.ERROR))
            raise


def _carrier() -> dict[str, str]:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    found: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(found)
    return found
