"""Finds which port of which sandbox a request is for, by its host name or headers."""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

_SANDBOX_ID = re.compile(r"[a-z0-9]{20}")
# ignore the suffix that old E2B clients add to the id
_LABEL = re.compile(r"([0-9]{1,5})-([a-z0-9]{20})(?:-[a-z0-9-]*)?")
_PORT = re.compile(r"[0-9]{1,5}")
_HOST_CHARS = 253
# a final dot, and ":65535"
_PORT_CHARS = 7

Face = Literal["api", "shared", "unknown"]
"""The API; the sandbox that headers name, or else the API; no target here."""


class Target(NamedTuple):
    """A port of a sandbox."""

    sandbox_id: str
    port: int


class BadHostError(ValueError):
    """Reports that the host name or the headers look like a port of a sandbox, but name none."""


def hostname(host: str) -> str:
    """Return the name or address in a ``Host`` header, without its port, in lower case."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    name, colon, port = name.rpartition(":")
    if not colon:
        name = port
    return name.removesuffix(".")


def route(host: str, domain: str | None) -> Target | Face:
    """Return the target of a ``Host`` header at a server for ``domain``.

    Raises:
        BadHostError: The value is too long for a name, or is a name below the domain that no sandbox can
            have.
    """
    # checked before any part of it is stored
    if len(host) > _HOST_CHARS + _PORT_CHARS:
        raise BadHostError("Invalid host")
    return _routed(host, domain)


@functools.lru_cache(maxsize=4096)
def _routed(host: str, domain: str | None) -> Target | Face:
    name = hostname(host)
    if domain is not None:
        if name in (domain, f"api.{domain}"):
            return "api"
        if name.endswith(f".{domain}"):
            return _labelled(name.removesuffix(f".{domain}"))
    if name == "localhost" or name.startswith("sandbox.") or _is_address(name):
        return "shared"
    label, _, rest = name.partition(".")
    if rest and _LABEL.fullmatch(label) and (domain is None or rest == "localhost"):
        return _labelled(label)
    return "api" if domain is None else "unknown"


def named(headers: Mapping[bytes, bytes]) -> Target | None:
    """Return the target of the headers ``E2b-Sandbox-Id`` and ``E2b-Sandbox-Port``, or None without them.

    Raises:
        BadHostError: The headers name something that cannot exist.
    """
    sandbox_id = headers.get(b"e2b-sandbox-id")
    port = headers.get(b"e2b-sandbox-port")
    if sandbox_id is None and port is None:
        return None
    return _target((sandbox_id or b"").decode("latin-1"), (port or b"").decode("latin-1"))


def _labelled(label: str) -> Target | Face:
    if label == "sandbox":
        return "shared"
    found = _LABEL.fullmatch(label)
    if found is None:
        raise BadHostError("Invalid host")
    return _target(found[2], found[1])


def _target(sandbox_id: str, port: str) -> Target:
    if not _SANDBOX_ID.fullmatch(sandbox_id):
        raise BadHostError("Invalid sandbox ID")
    if not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535:
        raise BadHostError("Invalid sandbox port")
    return Target(sandbox_id, int(port))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
