"""The API's own description: ``/openapi.json``, and ``/docs`` for people."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from atoll.protocol import Operation, api_document, api_page
from atoll.server.e2b import wire
from atoll.server.e2b.answers import answer
from atoll.version import __version__

_TITLE = "atoll server: the E2B API"
_ONE = "/sandboxes/{sandbox_id}"
_TEMPLATE = "/templates/{template_id}"
_BUILD = f"{_TEMPLATE}/builds/{{build_id}}"
_SECRET = "/secrets/{secretID}"
_VOLUME = "/volumes/{volume_id}"
_CONTENT = "/volumecontent/{volume_id}"
_LIST = ("metadata", "state", "order", "startedAfter", "template", "limit", "nextToken")
_LOGS = ("cursor", "limit", "direction", "level", "search")

OPERATIONS = (
    Operation("get", "/health", "Whether the server runs"),
    Operation("get", "/metrics", "The metrics of the home as text for Prometheus, with the owner's token"),
    Operation(
        "post",
        "/sandboxes",
        "Create a sandbox with a lease of 15 seconds",
        wire.NewSandbox,
        wire.Sandbox,
        status=201,
    ),
    Operation(
        "post",
        "/v2/sandboxes",
        "Create a sandbox with a lease of 5 minutes",
        wire.NewSandbox,
        wire.Sandbox,
        status=201,
    ),
    Operation("get", "/sandboxes", "Running sandboxes", None, list[wire.ListedSandbox], ("metadata",)),
    Operation("get", "/v2/sandboxes", "A page of sandboxes", None, list[wire.ListedSandbox], _LIST),
    Operation("get", _ONE, "One sandbox", None, wire.SandboxDetail),
    Operation("delete", _ONE, "Kill it"),
    Operation(
        "post", f"{_ONE}/connect", "Connect to it, and wake it if it sleeps", wire.Connect, wire.Sandbox
    ),
    Operation(
        "post",
        f"/v2{_ONE}/connect",
        "Connect to it for 5 minutes, and wake it if it sleeps",
        wire.Connect,
        wire.Sandbox,
    ),
    Operation("post", f"{_ONE}/resume", "Wake it", wire.Resume, wire.Sandbox, status=201),
    Operation("post", f"{_ONE}/pause", "Suspend it", wire.Pause),
    Operation("post", f"{_ONE}/timeout", "Change when it ends", wire.Timeout),
    Operation("post", f"{_ONE}/refreshes", "Move its end to later", wire.Refresh),
    Operation("put", f"{_ONE}/network", "Change what it may reach", wire.Network),
    Operation("post", f"{_ONE}/fork", "Create running copies", wire.Fork, list[wire.ForkResult], status=201),
    Operation(
        "post", f"{_ONE}/snapshots", "Create a snapshot of it", wire.NewSnapshot, wire.Snapshot, status=201
    ),
    Operation("get", f"{_ONE}/metrics", "What it used", None, list[wire.Metric], ("start", "end")),
    Operation("get", f"{_ONE}/logs", "Its log", None, wire.Logs, ("start", "limit")),
    Operation("get", f"/v2{_ONE}/logs", "Its log, forwards or backwards", None, wire.LogsPage, _LOGS),
    Operation(
        "get",
        "/sandboxes/metrics",
        "The newest metrics of several sandboxes",
        None,
        wire.MetricsOfSandboxes,
        ("sandbox_ids",),
    ),
    Operation(
        "get",
        "/snapshots",
        "A page of snapshots",
        None,
        list[wire.Snapshot],
        ("sandboxID", "name", "limit", "nextToken"),
    ),
    Operation("post", "/v3/templates", "Create a template, or a new build of one"),
    Operation("get", f"{_TEMPLATE}/files/{{hash}}", "The URL to upload files of a build to"),
    Operation("post", f"/v2{_BUILD}", "Start a build"),
    Operation("get", f"{_BUILD}/status", "State of a build", query=("logsOffset", "limit", "level")),
    Operation("get", f"{_BUILD}/logs", "Log of a build"),
    Operation("get", "/templates", "All templates"),
    Operation("get", "/v2/templates", "A page of templates"),
    Operation("get", _TEMPLATE, "One template"),
    Operation("patch", f"/v2{_TEMPLATE}", "Change who may use it"),
    Operation("delete", _TEMPLATE, "Delete a template or a snapshot"),
    Operation("get", "/templates/aliases/{alias}", "The template with this name"),
    Operation("post", "/templates/tags", "Add tags to a build"),
    Operation("delete", "/templates/tags", "Remove tags"),
    Operation("get", f"{_TEMPLATE}/tags", "Tags of a template"),
    Operation("post", "/volumes", "Create a volume"),
    Operation("get", "/volumes", "All volumes"),
    Operation("get", _VOLUME, "One volume"),
    Operation("delete", _VOLUME, "Delete it"),
    Operation("post", "/secrets", "Create a secret"),
    Operation("get", "/secrets", "A page of secrets", query=("limit", "nextToken")),
    Operation("get", _SECRET, "One secret, by id or name"),
    Operation("post", _SECRET, "Give it a new value"),
    Operation("delete", _SECRET, "Erase it"),
    Operation("get", f"{_CONTENT}/path", "What a path is", query=("path",)),
    Operation("patch", f"{_CONTENT}/path", "Change its owner or mode", query=("path",)),
    Operation("delete", f"{_CONTENT}/path", "Remove it", query=("path",)),
    Operation("get", f"{_CONTENT}/dir", "Entries of a directory", query=("path", "depth")),
    Operation("post", f"{_CONTENT}/dir", "Create a directory", query=("path", "uid", "gid", "mode", "force")),
    Operation("get", f"{_CONTENT}/file", "Read a file", query=("path",)),
    Operation("put", f"{_CONTENT}/file", "Write a file", query=("path", "uid", "gid", "mode", "force")),
)


def documentation_routes() -> Sequence[Route]:
    """Return ``/openapi.json`` and ``/docs``.

    Neither needs a key, because neither tells anything about the server's content.
    """

    async def document(_: Request) -> Response:
        return answer(api_document(_TITLE, __version__, OPERATIONS, wire.Fault))

    async def page(_: Request) -> Response:
        return HTMLResponse(api_page(_TITLE, __version__, OPERATIONS))

    return [Route("/openapi.json", document), Route("/docs", page)]
