"""How a request says which trace it belongs to, and what its span is called."""

from __future__ import annotations

# Of W3C Trace Context, which OpenTelemetry speaks.
TRACE_HEADERS = ("traceparent", "tracestate")


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
