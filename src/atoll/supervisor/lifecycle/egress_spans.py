"""Sends spans of the requests of sandboxes that belong to a trace of a client."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.protocol import gen_ai_attributes
from atoll.supervisor.tracing import Recorded

if TYPE_CHECKING:
    from atoll.network import EdgeSpan, ModelSpan

_Attributes = dict[str, str | int | bool]

_METHODS = frozenset(
    {"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"}
)
_OTHER_METHOD = "_OTHER"
_SANDBOXES_MOST = 1000
_TRACES_MOST = 64
_WAITING_MOST = 100
# Clients tell of a trace after the program has begun, and again after five seconds if nobody was there.
_WAIT_S = 10.0


@dataclass(eq=False, repr=False)
class _Known:
    """What is known of the traces of one sandbox: the latest ids that clients have told, and early spans."""

    traces: OrderedDict[str, None] = field(default_factory=OrderedDict)
    waiting: deque[tuple[float, EdgeSpan]] = field(default_factory=lambda: deque(maxlen=_WAITING_MOST))


@dataclass(eq=False, repr=False)
class EgressSpans:
    """Lets a guest add to the traces of its own clients, and to no others.

    Args:
        record: Sends a span with a name and attributes.
        boot_s: A clock that never jumps.
    """

    record: Callable[[str, Recorded, Mapping[str, str | int | bool]], None]
    boot_s: Callable[[], float]
    _of: OrderedDict[str, _Known] = field(default_factory=OrderedDict, init=False)

    def told(self, sandbox_id: str, trace: str) -> None:
        """Take the spans of a trace from now on, since a client has given it to a program of the sandbox."""
        known = self._known(sandbox_id)
        known.traces[trace] = None
        known.traces.move_to_end(trace)
        if len(known.traces) > _TRACES_MOST:
            known.traces.popitem(last=False)
        if not known.waiting:
            return
        oldest_s = self.boot_s() - _WAIT_S
        waiting = [one for one in known.waiting if one[0] >= oldest_s]
        known.waiting.clear()
        for one in waiting:
            if one[1].trace == trace:
                self._send(sandbox_id, one[1])
            else:
                known.waiting.append(one)

    def heard(self, sandbox_id: str, spans: Sequence[EdgeSpan]) -> None:
        """Send spans of traces that clients have told of. Others wait a while for a client."""
        known = self._known(sandbox_id)
        for span in spans:
            if span.trace in known.traces:
                self._send(sandbox_id, span)
            else:
                known.waiting.append((self.boot_s(), span))

    def _known(self, sandbox_id: str) -> _Known:
        known = self._of.setdefault(sandbox_id, _Known())
        self._of.move_to_end(sandbox_id)
        if len(self._of) > _SANDBOXES_MOST:
            self._of.popitem(last=False)
        return known

    def _send(self, sandbox_id: str, span: EdgeSpan) -> None:
        began_ns = span.began_us * 1000
        of = Recorded(
            trace=span.trace,
            parent=span.parent,
            began_ns=began_ns,
            ended_ns=began_ns + span.took_us * 1000,
        )
        self.record(_name(span), of, {"atoll.sandbox": sandbox_id, **_attributes(span)})


def _name(span: EdgeSpan) -> str:
    if span.model is not None and span.model.operation:
        return f"{_plain(span.model.operation)} {_plain(span.model.asked)}"
    return f"egress {_method(span)}"


def _attributes(span: EdgeSpan) -> _Attributes:
    """What is known of a request. Its path, its headers and its body may hold secrets."""
    found: _Attributes = {
        "http.request.method": _method(span),
        "url.scheme": _plain(span.scheme),
        "server.address": _plain(span.host),
        "server.port": span.port,
        "http.request.body.size": span.sent_bytes,
        "http.response.body.size": span.received_bytes,
    }
    if span.status:
        found["http.response.status_code"] = span.status
    if span.action:
        found["atoll.egress.action"] = _plain(span.action)
    if span.rule:
        found["atoll.egress.rule"] = _plain(span.rule)
    if span.error or span.status >= 400:
        found["error.type"] = _plain(span.error) or str(span.status)
    return found if span.model is None else found | _of_model(span.model)


def _of_model(model: ModelSpan) -> _Attributes:
    texts = {
        "operation": model.operation,
        "provider": model.dialect,
        "model": model.asked,
        "served": model.name,
    }
    details: _Attributes = {name: _plain(text) for name, text in texts.items() if text}
    if model.provider:
        usage = model.usage
        details |= {
            "input": usage.input,
            "cache_read": usage.cache_read,
            "cache_write": usage.cache_write,
            "output": usage.output,
            "atoll.provider": _plain(model.provider),
            "atoll.estimated": model.estimated,
        }
    return gen_ai_attributes(details)


def _method(span: EdgeSpan) -> str:
    return span.method if span.method in _METHODS else _OTHER_METHOD


def _plain(text: str) -> str:
    """A guest may have chosen the text, and a terminal or page may show it."""
    return "".join(char if char.isprintable() else "?" for char in text)
