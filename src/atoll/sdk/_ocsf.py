"""Entries of the audit log as events of the Open Cybersecurity Schema Framework."""

from __future__ import annotations

import ipaddress
import posixpath
from typing import Any

from atoll.protocol import gen_ai_attributes
from atoll.types import AuditEntry
from atoll.version import __version__

OCSF_VERSION = "1.8.0"
_INFORMATIONAL, _LOW, _MEDIUM = 1, 2, 3
_OTHER = 99
_FILE, _PROCESS, _LOGIN, _NETWORK, _HTTP, _LIFE, _API = 1001, 1007, 3002, 4001, 4002, 6002, 6003
_LIFE_ACTIVITIES = {
    "created": 1,
    "killed": 2,
    "woken": 3,
    "paused": 4,
    "suspended": 4,
    "stopped": 4,
    "crashed": 4,
    "replugged": 6,
    "unplugged": 7,
    "changed": 8,
}
_API_ACTIVITIES = {"create": 1, "update": 3, "replace": 3, "delete": 4}
_HTTP_ACTIVITIES = {
    "CONNECT": 1,
    "DELETE": 2,
    "GET": 3,
    "HEAD": 4,
    "OPTIONS": 5,
    "POST": 6,
    "PUT": 7,
    "TRACE": 8,
    "PATCH": 9,
}
_OPENS, _REFUSES = 1, 5
_READS, _WRITES = 2, 3
_LAUNCHES = _LOGS_ON = 1
_VIRTUAL, _REGULAR, _SHA256 = 6, 1, 3
_ALLOWED, _DENIED, _DECIDED_LATER = (1, 1), (2, 2), (_OTHER, 14)
_PORTS = 1 << 16

_Event = dict[str, Any]
_Fields = dict[str, Any]


def ocsf_event(entry: AuditEntry) -> _Event:
    """Return an entry as an event of OCSF 1.8.0. What has no place in it is in ``unmapped``."""
    details: _Fields = {name: value for name, value in entry.details.items() if value is not None}
    kind, activity, fields = _mapped(entry, details)
    event: _Event = {
        "class_uid": kind,
        "category_uid": kind // 1000,
        "activity_id": activity,
        "type_uid": kind * 100 + activity,
        "time": round(entry.at * 1000),
        "severity_id": _severity(entry),
        "status_id": 1 if entry.outcome == "ok" else 2,
        "status_code": entry.outcome,
        "message": entry.act,
        "metadata": _metadata(entry),
        **fields,
    }
    if entry.act == "model.called":
        details = gen_ai_attributes(details)
    rest = {**details, "sandbox": entry.sandbox_id, "delegation": entry.delegation}
    unmapped = {name: value for name, value in rest.items() if value is not None}
    if unmapped:
        event["unmapped"] = unmapped
    return event


def _mapped(entry: AuditEntry, details: _Fields) -> tuple[int, int, _Fields]:
    """The class, the activity and the fields of the class. What it uses of the details, it takes out."""
    noun, _, verb = entry.act.partition(".")
    if entry.act in ("command.started", "code.run"):
        return _PROCESS, _LAUNCHES, _process(entry, details)
    if noun == "file":
        return _FILE, _READS if verb == "read" else _WRITES, _file(entry, details)
    if noun == "egress" and verb != "more":
        return _egress(entry, verb, details)
    if noun == "sandbox" and entry.sandbox_id is not None:
        return _LIFE, _LIFE_ACTIVITIES.get(verb, _OTHER), {"app": _sandbox(entry.sandbox_id)}
    if entry.act == "keys.check":
        user = {"name": entry.team or "unknown"}
        return _LOGIN, _LOGS_ON, {"user": user, "service": {"name": "atoll"}, "actor": _actor(entry)}
    last = entry.act.rpartition(".")[2]
    return _API, _API_ACTIVITIES.get(last, _OTHER), _api(entry, details)


def _process(entry: AuditEntry, details: _Fields) -> _Fields:
    line = details.pop("argv", None) or details.pop("line", None)
    process: _Fields = {"uid": f"atoll-{entry.sequence}"}
    if line is not None:
        process["cmd_line"] = str(line)
    if (user := details.pop("user", None)) is not None:
        process["user"] = {"name": str(user)}
    return {"process": process, "actor": _actor(entry), "device": _device(entry)}


def _file(entry: AuditEntry, details: _Fields) -> _Fields:
    path, digest, size = (
        str(details.pop("path", "")),
        details.pop("sha256", None),
        details.pop("bytes", None),
    )
    file: _Fields = {"name": posixpath.basename(path) or path or "unknown", "path": path, "type_id": 0}
    if digest is not None:
        file |= {"type_id": _REGULAR, "hashes": [{"algorithm_id": _SHA256, "value": str(digest)}]}
    if isinstance(size, int):
        file["size"] = size
    return {"file": file, "actor": _actor(entry), "device": _device(entry)}


def _egress(entry: AuditEntry, verb: str, details: _Fields) -> tuple[int, int, _Fields]:
    passes = verb == "allow" or bool(details.get("observed"))
    host, port = str(details.pop("host", "")), details.pop("port", None)
    action, disposition = _DECIDED_LATER if verb == "ask" else _ALLOWED if passes else _DENIED
    fields: _Fields = {
        "src_endpoint": {"uid": entry.sandbox_id or "unknown"},
        "dst_endpoint": _endpoint(host, port),
        "action_id": action,
        "disposition_id": disposition,
    }
    if (rule := details.pop("rule", None)) is not None:
        fields["firewall_rule"] = {"uid": str(rule)}
    if isinstance(details.get("count"), int):
        fields["count"] = details.pop("count")
    if (reason := details.pop("reason", None)) is not None:
        fields["status_detail"] = str(reason)
    method = details.get("method")
    if method not in _HTTP_ACTIVITIES or details.get("scheme") not in ("http", "https"):
        return _NETWORK, _OPENS if passes else _REFUSES, fields
    del details["method"]
    url: _Fields = {"path": str(details.pop("path", "/")), "scheme": details.pop("scheme")}
    if host:
        url["hostname"] = host
    if _is_port(port):
        url["port"] = port
    fields["http_request"] = {"http_method": method, "url": url}
    return _HTTP, _HTTP_ACTIVITIES[str(method)], fields


def _api(entry: AuditEntry, details: _Fields) -> _Fields:
    resources = [{"type": "sandbox", "uid": entry.sandbox_id}] if entry.sandbox_id is not None else []
    for name in ("ref", "name", "snapshot", "key_id"):
        if name in details:
            resources.append({"type": name, "name": str(details.pop(name))})
    fields: _Fields = {
        "api": {"operation": entry.act, "service": {"name": "atoll"}},
        "actor": _actor(entry),
        "src_endpoint": {"name": entry.caller or "atoll"},
    }
    if resources:
        fields["resources"] = resources
    return fields


def _severity(entry: AuditEntry) -> int:
    if entry.act in ("audit.removed", "client.more", "egress.more", "sandbox.crashed", "sandbox.unplugged"):
        return _MEDIUM
    return _LOW if entry.outcome != "ok" or entry.act == "egress.deny" else _INFORMATIONAL


def _metadata(entry: AuditEntry) -> _Fields:
    metadata: _Fields = {
        "version": OCSF_VERSION,
        "product": {"name": "atoll", "vendor_name": "atoll", "version": __version__},
        "event_code": entry.act,
        "log_name": "audit",
        "uid": str(entry.sequence),
        "sequence": entry.sequence,
        "log_provider": entry.source,
    }
    if entry.act.startswith("egress.") and entry.act != "egress.more":
        metadata["profiles"] = ["security_control"]
    if entry.team is not None:
        metadata["tenant_uid"] = entry.team
    return metadata


def _actor(entry: AuditEntry) -> _Fields:
    return {"app_name": entry.caller or "atoll"}


def _device(entry: AuditEntry) -> _Fields:
    return {"type_id": _VIRTUAL, "uid": entry.sandbox_id or "unknown"}


def _sandbox(sandbox_id: str) -> _Fields:
    return {"name": "sandbox", "uid": sandbox_id}


def _endpoint(host: str, port: object) -> _Fields:
    endpoint: _Fields = {"port": port} if _is_port(port) else {}
    try:
        endpoint["ip"] = str(ipaddress.ip_address(host))
    except ValueError:
        endpoint["hostname" if host else "name"] = host or "unknown"
    return endpoint


def _is_port(port: object) -> bool:
    return isinstance(port, int) and 0 < port < _PORTS
