"""Bodies of the supervisor's HTTP API that concern templates and their builds."""

from __future__ import annotations

from typing import Literal

import msgspec

from atoll.types import Limits, Service


class TemplateRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/templates``: a build that waits to be begun, of the template of that name."""

    name: str
    tags: list[str] = []
    team: str | None = None
    limits: Limits = Limits()
    public: bool | None = None


class RecordRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/snapshots/REF/template`` and ``POST /v1/sandboxes/REF/template``."""

    name: str | None = None
    tags: list[str] = []
    team: str | None = None


class TagsRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/templates/REF/tag`` and ``/untag``."""

    tags: list[str]
    team: str | None = None


class PublishRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/templates/REF/publish``."""

    public: bool
    team: str | None = None


class CachedRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/builds/ID/cached``: keys of steps, the last step first."""

    keys: list[str]


class CachedStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A step and what came of it: body of ``POST /v1/builds/ID/steps``, answer of ``/cached`` (empty for none)."""

    step_key: str = ""
    snapshot_id: str = ""


class FinishRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/builds/ID/finish``: how a build ended."""

    state: Literal["ready", "failed", "cancelled"]
    snapshot_id: str | None = None
    image: str | None = None
    step: str | None = None
    reason: str | None = None


class DefaultsRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/sandboxes/REF/defaults``: what programs get that are started from now on; None stays.

    ``service`` is one more that is started whenever it boots from its disk.
    """

    env: dict[str, str] | None = None
    user: str | None = None
    cwd: str | None = None
    service: Service | None = None
