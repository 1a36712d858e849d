"""Describes the API: ``/openapi.json``, and ``/docs`` for people."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from atoll import protocol, types
from atoll.protocol import Operation, api_document, api_page
from atoll.supervisor.api.reply import json_answer
from atoll.version import __version__

_TITLE = "atoll supervisor"
_ONE = "/v1/sandboxes/{ref}"
_VOLUME = "/v1/volumes/{ref}"
_SECRET = "/v1/secrets/{ref}"
OPERATIONS = (
    Operation(
        "get",
        "/hello",
        "Version and protocol of the supervisor; this route never changes",
        None,
        protocol.Hello,
    ),
    Operation("get", "/list", "All sandboxes, in short; this route never changes", None, protocol.Listed),
    Operation(
        "post", "/suspend-all", "Suspend all sandboxes; this route never changes", None, protocol.SuspendedAll
    ),
    Operation("post", "/stop", "Suspend all sandboxes and end the supervisor; this route never changes"),
    Operation("post", "/v1/sandboxes", "Create a sandbox", types.SandboxSpec, types.SandboxInfo),
    Operation("get", "/v1/sandboxes", "A page of sandboxes", None, types.SandboxPage),
    Operation("get", _ONE, "One sandbox, by id or name", None, types.SandboxInfo),
    Operation("delete", _ONE, "Kill it"),
    Operation("post", f"{_ONE}/pause", "Freeze it in memory", None, types.SandboxInfo),
    Operation(
        "post", f"{_ONE}/resume", "Wake it, if it does not run", protocol.ResumeRequest, types.SandboxInfo
    ),
    Operation(
        "post",
        f"{_ONE}/suspend",
        "Write its memory to the disk, or drop it",
        protocol.SuspendRequest,
        types.SandboxInfo,
    ),
    Operation(
        "post", f"{_ONE}/wake", "Wake it, if it does not run", protocol.ResumeRequest, types.SandboxInfo
    ),
    Operation(
        "post",
        f"{_ONE}/unplug",
        "Cut its network and freeze it until it is replugged",
        protocol.UnplugRequest,
        types.SandboxInfo,
    ),
    Operation("post", f"{_ONE}/replug", "Undo that", None, types.SandboxInfo),
    Operation(
        "post", "/v1/unplug-all", "Unplug all sandboxes", protocol.UnplugRequest, protocol.UnpluggedAll
    ),
    Operation("post", f"{_ONE}/lease", "Move the end of its lease", protocol.LeaseRequest, types.SandboxInfo),
    Operation(
        "post",
        f"{_ONE}/keep-awake",
        "Have it count as active for a while",
        protocol.KeepAwakeRequest,
        types.SandboxInfo,
    ),
    Operation(
        "post", f"{_ONE}/hold", "Hold it for as long as the answer is read", query=("binds",), status=200
    ),
    Operation(
        "post", f"{_ONE}/network", "Change what it may reach", protocol.NetworkRequest, types.SandboxInfo
    ),
    Operation("post", f"{_ONE}/fork", "Create running copies", protocol.ForkRequest, list[types.SandboxInfo]),
    Operation(
        "post", f"{_ONE}/rollback", "Roll it back to a snapshot", protocol.RollbackRequest, types.SandboxInfo
    ),
    Operation(
        "post",
        f"{_ONE}/promote",
        "Have it go on from a fork's state; returns a snapshot of what it was",
        protocol.PromoteRequest,
        types.SnapshotInfo,
    ),
    Operation(
        "post",
        f"{_ONE}/diff",
        "What differs in its files from those of a sandbox or snapshot",
        protocol.DiffRequest,
        types.FilesDiff,
    ),
    Operation(
        "post",
        f"{_ONE}/asks",
        "Ask people about it, and wait for the answer",
        protocol.AskRequest,
        types.Ask,
    ),
    Operation("post", f"{_ONE}/told", "Note in the audit log what a client did in it", protocol.ToldRequest),
    Operation(
        "post", f"{_ONE}/snapshots", "Create a snapshot of it", protocol.SnapshotRequest, types.SnapshotInfo
    ),
    Operation("post", f"{_ONE}/limits", "Change limits", protocol.LimitsRequest, types.SandboxInfo),
    Operation("post", f"{_ONE}/services", "Add a service and start it", types.ServiceSpec, types.ServiceInfo),
    Operation("get", f"{_ONE}/services", "Its services", None, list[types.ServiceInfo]),
    Operation("delete", f"{_ONE}/services/{{name}}", "Stop a service and forget it"),
    Operation("get", f"{_ONE}/stats", "What it uses", None, types.SandboxStats),
    Operation("get", f"{_ONE}/stats/history", "What it used in the last hour", None, list[types.StatsSample]),
    Operation("get", f"{_ONE}/powers", "What it could do at worst", None, types.Powers),
    Operation("get", f"{_ONE}/logs", "Its console, from a given byte", None, protocol.LogsPage),
    Operation(
        "delete",
        "/v1/requests/{token}",
        f"Kill what the request with this {protocol.REQUEST_HEADER} created",
    ),
    Operation("get", "/v1/asks", "The acts that wait for an answer", None, types.AskPage),
    Operation("get", "/v1/asks/follow", "The same again whenever they change", None, types.AskPage),
    Operation("get", "/v1/asks/{ask}", "One of them", None, types.Ask),
    Operation("post", "/v1/asks/{ask}/answer", "Answer it", types.Answer, types.Ask),
    Operation("get", "/v1/audit", "A page of the audit log", None, types.AuditPage),
    Operation(
        "post", "/v1/audit/verify", "Check the whole audit log", protocol.AuditCheck, types.AuditReport
    ),
    Operation("get", "/v1/alerts", "The newest alerts", None, types.AlertPage),
    Operation("get", "/v1/alerts/follow", "The same, and then each new one", None, types.AlertPage),
    Operation("get", "/v1/snapshots", "All snapshots, or one sandbox's", None, list[types.SnapshotInfo]),
    Operation("get", "/v1/snapshots/{ref}", "One snapshot, by id or name", None, types.SnapshotInfo),
    Operation("get", "/v1/snapshots/{ref}/digest", "The digest of all that it consists of", None, str),
    Operation("delete", "/v1/snapshots/{ref}", "Erase it"),
    Operation("post", "/v1/volumes", "Create a volume", protocol.VolumeRequest, types.VolumeInfo),
    Operation("get", "/v1/volumes", "All volumes, or one team's", None, list[types.VolumeInfo]),
    Operation("get", "/v1/volumes/{ref}", "One volume, by id or name", None, types.VolumeInfo),
    Operation("delete", "/v1/volumes/{ref}", "Erase it"),
    Operation("put", f"{_VOLUME}/quota", "Replace its quota", protocol.VolumeQuotaRequest, types.VolumeInfo),
    Operation(
        "post",
        "/v1/snapshots/{ref}/template",
        "Make it a template's newest build",
        protocol.RecordRequest,
        types.Resolved,
    ),
    Operation(
        "post",
        f"{_ONE}/template",
        "Make a snapshot of it a template's newest build",
        protocol.RecordRequest,
        types.Resolved,
    ),
    Operation(
        "post",
        f"{_ONE}/defaults",
        "Change the defaults of its programs",
        protocol.DefaultsRequest,
        types.SandboxInfo,
    ),
    Operation("get", "/v1/templates", "All templates, or a team's", None, list[types.TemplateInfo]),
    Operation(
        "post",
        "/v1/templates",
        "Create a build that waits to start",
        protocol.TemplateRequest,
        types.BuildInfo,
    ),
    Operation("get", "/v1/templates/{ref}", "One template, by id or name", None, types.TemplateInfo),
    Operation("delete", "/v1/templates/{ref}", "Forget it"),
    Operation("post", "/v1/templates/{ref}/tag", "Add tags", protocol.TagsRequest, types.BuildInfo),
    Operation("post", "/v1/templates/{ref}/untag", "Remove tags", protocol.TagsRequest),
    Operation("post", "/v1/templates/{ref}/publish", "Share it", protocol.PublishRequest, types.TemplateInfo),
    Operation("get", "/v1/resolved", "What a sandbox of this template starts from", None, types.Resolved),
    Operation("delete", "/v1/steps", "Delete the stored steps of builds", None, types.PrunedSteps),
    Operation("get", "/v1/builds/{id}", "One build", None, types.BuildInfo),
    Operation(
        "post", "/v1/builds/{id}/begin", "Run it; closing the connection cancels it", None, types.BuildInfo
    ),
    Operation(
        "post",
        "/v1/builds/{id}/cached",
        "The first of these steps that is stored",
        protocol.CachedRequest,
        protocol.CachedStep,
    ),
    Operation("post", "/v1/builds/{id}/steps", "Store a step", protocol.CachedStep),
    Operation("post", "/v1/builds/{id}/finish", "End it", protocol.FinishRequest, types.BuildInfo),
    Operation(
        "post",
        "/v1/snapshots/verify",
        "Check their memories and layers",
        protocol.VerifyRequest,
        types.VerifyReport,
    ),
    Operation(
        "post", "/v1/verified-images", "Check their layers", protocol.VerifyRequest, types.VerifyReport
    ),
    Operation("get", f"{_VOLUME}/entry", "What a path is", None, types.VolumeEntry),
    Operation(
        "post", f"{_VOLUME}/entry", "Change its owner or mode", protocol.AttributesRequest, types.VolumeEntry
    ),
    Operation("delete", f"{_VOLUME}/entry", "Remove it"),
    Operation("get", f"{_VOLUME}/dir", "A directory's entries", None, list[types.VolumeEntry]),
    Operation("post", f"{_VOLUME}/dir", "Create a directory", None, types.VolumeEntry),
    Operation("get", f"{_VOLUME}/file", "A file's bytes"),
    Operation("put", f"{_VOLUME}/file", "Make the body the content of a file", None, types.VolumeEntry),
    Operation("get", "/v1/images", "All images", None, list[types.ImageInfo]),
    Operation("get", "/v1/images/{name}", "One image", None, types.ImageInfo),
    Operation(
        "post",
        "/v1/images/{name}",
        "Build or pull an image if it is missing; with ?newest=true, pull what its registry has now",
        types.ImageAccess,
        types.ImageInfo,
    ),
    Operation("delete", "/v1/images/{name}", "Erase it"),
    Operation("get", "/v1/disk", "What everything, or a team, uses on the disk", None, types.DiskReport),
    Operation(
        "post",
        "/v1/drain",
        "Suspend all sandboxes, and let none start or wake",
        protocol.DrainRequest,
        types.DrainReport,
    ),
    Operation("get", "/v1/drain", "Whether the home is drained", None, types.DrainInfo),
    Operation("delete", "/v1/drain", "End that, and wake what ran before", None, types.UndrainReport),
    Operation(
        "post",
        "/v1/fsck",
        "Check everything that is stored, and repair what has a second copy",
        protocol.FsckRequest,
        types.VerifyReport,
    ),
    Operation("get", "/v1/upgrade", "What another engine made than the one now", None, types.UpgradeReport),
    Operation("get", "/v1/leftovers", "What a crash left behind", None, list[protocol.Leftover]),
    Operation("delete", "/v1/leftovers", "Remove that", None, list[protocol.Leftover]),
    Operation("post", "/v1/teams", "Create a team", protocol.TeamRequest, types.TeamInfo),
    Operation("get", "/v1/teams", "All teams", None, list[types.TeamInfo]),
    Operation("get", "/v1/teams/{name}", "One team", None, types.TeamInfo),
    Operation("put", "/v1/teams/{name}/quotas", "Replace its quotas", types.Quotas, types.TeamInfo),
    Operation(
        "put",
        "/v1/teams/{name}/ceiling",
        "Set what its sandboxes reach at most",
        protocol.CeilingRequest,
        types.TeamInfo,
    ),
    Operation("get", "/v1/teams/{name}/use", "What it uses", None, types.TeamUse),
    Operation("delete", "/v1/teams/{name}", "Delete it, its keys and secrets, if it owns nothing"),
    Operation(
        "post", "/v1/keys", "Create a key, which is shown only this once", protocol.KeyRequest, types.NewKey
    ),
    Operation("get", "/v1/keys", "All keys, or a team's", None, list[types.KeyInfo]),
    Operation("delete", "/v1/keys/{key_id}", "Revoke it", None, types.KeyInfo),
    Operation("post", "/v1/keys/check", "The team of a key", protocol.KeyCheck, types.TeamInfo),
    Operation("get", "/v1/metrics", "The metrics of the home", None, list[types.MetricFamily]),
    Operation("get", "/v1/models", "The models that the home offers", None, types.ModelSetup),
    Operation("put", "/v1/models", "Offer other models", types.ModelSetup, types.ModelSetup),
    Operation("get", "/v1/models/usage", "What was used of them", None, types.ModelReport),
    Operation("get", "/v1/models/prices", "What they cost", None, types.ModelPrices),
    Operation("post", "/v1/secrets", "Create a secret", protocol.SecretRequest, types.SecretInfo),
    Operation("get", "/v1/secrets", "All secrets, or a team's", None, list[types.SecretInfo]),
    Operation("get", _SECRET, "One secret, by id or name, without its value", None, types.SecretInfo),
    Operation("post", _SECRET, "Change it", protocol.SecretUpdate, types.SecretInfo),
    Operation("delete", _SECRET, "Erase it"),
)
_QUERY = {
    "/v1/audit": ("after", "newest", "limit", "sandbox", "team", "act", "delegation", "since", "until"),
    "/v1/sandboxes": ("state", "metadata", "team", "limit", "cursor"),
    f"{_ONE}/logs": ("offset",),
    "/v1/alerts": ("sandbox", "team", "after", "newest"),
    "/v1/alerts/follow": ("sandbox", "team", "after", "newest"),
    "/v1/snapshots": ("sandbox", "team"),
    "/v1/keys": ("team",),
    "/v1/models/usage": ("sandbox", "team", "since"),
    "/v1/secrets": ("team",),
    "/v1/disk": ("team",),
    _SECRET: ("team",),
    "/v1/volumes": ("team",),
    "/v1/templates": ("team",),
    "/v1/templates/{ref}": ("team",),
    "/v1/resolved": ("ref", "team"),
    f"{_ONE}/stats/history": ("start", "end"),
    _VOLUME: ("team",),
    f"{_VOLUME}/quota": ("team",),
    f"{_VOLUME}/entry": ("path", "team"),
    f"{_VOLUME}/dir": ("path", "team", "depth", "parents", "mode", "uid", "gid"),
    f"{_VOLUME}/file": ("path", "team", "parents", "replace", "mode", "uid", "gid"),
    "/stop": ("force",),
}


def described() -> list[Operation]:
    """The operations with their query parameters."""
    return [
        msgspec.structs.replace(each, query=_QUERY.get(each.path, ()))
        if each.method == "get" or each.path == "/stop" or each.path.startswith((f"{_VOLUME}/", _SECRET))
        else each
        for each in OPERATIONS
    ]


def documentation_routes() -> list[Route]:
    """``/openapi.json`` and ``/docs``."""

    async def openapi(_: Request) -> Response:
        return json_answer(api_document(_TITLE, __version__, described(), protocol.ErrorBody))

    async def docs(_: Request) -> Response:
        return HTMLResponse(api_page(_TITLE, __version__, OPERATIONS))

    return [Route("/openapi.json", openapi), Route("/docs", docs)]
