"""The description of an HTTP API: an OpenAPI document, and a page that loads nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec


class Operation(msgspec.Struct, frozen=True):
    """One operation of an API.

    Args:
        method: The HTTP method, in lower case.
        path: The path, with its variable parts in braces.
        summary: Its effect, in a few words.
        body: Type of the request's body; None means no body.
        result: Type of the answer's body; None means no body.
        query: Names in the query part.
        status: Status of a successful answer. None means 200 with a body, 204 without.
    """

    method: str
    path: str
    summary: str
    body: Any = None
    result: Any = None
    query: tuple[str, ...] = ()
    status: int | None = None


def api_document(title: str, version: str, operations: Sequence[Operation], error: Any) -> dict[str, Any]:
    """Return the operations as an OpenAPI 3.1 document.

    Args:
        title: The API's name.
        version: Its version.
        operations: Its operations.
        error: Type of the body of an error.
    """
    kinds = [kind for each in operations for kind in (each.body, each.result) if kind is not None]
    kinds.append(error)
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schema_of = {str(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        described = _described(each, schema_of)
        described["responses"]["default"] = _json("An error", schema_of[str(error)])
        paths.setdefault(each.path, {})[each.method] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {"schemas": components},
    }


def api_page(title: str, version: str, operations: Sequence[Operation]) -> str:
    """Return the operations as an HTML page. The document is next to it as ``openapi.json``."""
    # imported here, because clients share this room and start often
    from html import escape

    def name(kind: Any) -> str:
        return escape(getattr(kind, "__name__", str(kind)) if kind is not None else "")

    rows = "".join(
        f"<tr><td><code>{each.method.upper()}</code></td><td><code>{escape(each.path)}</code></td>"
        f"<td>{escape(each.summary)}</td><td>{name(each.body)}</td><td>{name(each.result)}</td></tr>"
        for each in operations
    )
    return (
        f"<!doctype html><meta charset=utf-8><title>{escape(title)}</title>"
        "<style>body{font-family:sans-serif;margin:2em}td,th{text-align:left;padding:.2em 1em .2em 0}</style>"
        f"<h1>{escape(title)} {escape(version)}</h1>"
        "<p>Machine-readable: <a href=openapi.json>openapi.json</a></p>"
        f"<table><tr><th><th>Path<th>Does<th>Body<th>Answer</tr>{rows}</table>"
    )


def _described(each: Operation, schema_of: dict[str, Any]) -> dict[str, Any]:
    places = [("path", name) for name in re.findall(r"{(\w+)", each.path)]
    places += [("query", name) for name in each.query]
    good = _json("Done", schema_of[str(each.result)]) if each.result else {"description": "Done"}
    described: dict[str, Any] = {
        "summary": each.summary,
        "parameters": [
            {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}
            for place, name in places
        ],
        "responses": {str(each.status or (200 if each.result else 204)): good},
    }
    if each.body:
        described["requestBody"] = _json("What is wanted", schema_of[str(each.body)])
    return described


def _json(text: str, schema: Any) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}
