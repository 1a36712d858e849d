"""Bodies of the supervisor's HTTP API for templates and their builds."""

from __future__ import annotations

from typing import Literal

import msgspec

from atoll.protocol.error_bodies import ErrorBody
from atoll.types import BuildInfo, BuildLine, Limits, StartCommand, TemplateSpec


class TemplateRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/templates``: makes a build of the template ``name``, not yet started."""

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
    """A step and its result: body of ``POST /v1/builds/ID/steps``, answer to ``/cached``.

    The answer is empty if no step was found.
    """

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
    """Body of ``POST /v1/sandboxes/REF/defaults``: the defaults of programs started from now on.

    None leaves a default unchanged. ``start_command`` adds a command that runs whenever the sandbox boots
    from its disk.
    """

    env: dict[str, str] | None = None
    user: str | None = None
    cwd: str | None = None
    start_command: StartCommand | None = None


class BuildRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/builds/ID/run`` of ``atoll serve``, which carries out a waiting build.

    Its copy steps name uploads. ``timeout_s`` bounds all steps together.
    """

    spec: TemplateSpec
    timeout_s: float


class BuildNews(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of its answer: first the build that has begun, then lines of its log, and at last the build or an error.

    Empty lines between them say that the server is there.
    """

    build: BuildInfo | None = None
    line: BuildLine | None = None
    error: ErrorBody | None = None
