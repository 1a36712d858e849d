"""How a request says which trace it belongs to, and what its span is called."""

from __future__ import annotations

import re

# Of W3C Trace Context, which OpenTelemetry speaks.
TRACE_HEADERS = ("traceparent", "tracestate")
_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def trace_of(traceparent: str) -> str | None:
    """The id of the trace that a header ``traceparent`` names; None if it names none."""
    found = _TRACEPARENT.fullmatch(traceparent)
    return None if found is None else found[1]


def span_name(method: str, path: str) -> str:
    """A name for all requests of one kind: the method, the collection, and what is done with one of it.

    It has no id, so that there are few names: ``POST sandboxes/fork``.
    """
    parts = path.partition("?")[0].strip("/").split("/")
    collection, verb = parts[1:2], parts[3:4]
    return " ".join([method, *filter(None, ["/".join([*collection, *verb])])])


def span_attributes(method: str, path: str) -> dict[str, str]:
    """The attributes of a request's span, by OpenTelemetry's names where it has any."""
    path = path.partition("?")[0]
    parts = path.strip("/").split("/")
    found = {"http.request.method": method, "url.path": path}
    if parts[1:2] == ["sandboxes"] and len(parts) > 2:
        found["atoll.sandbox"] = parts[2]
    return found
