"""Bodies of E2B's template routes as JSON. Unknown fields are ignored; bounds are checked on reading."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

_Text = Annotated[str, Meta(max_length=262_144)]
_Ref = Annotated[str, Meta(max_length=512)]
_Tags = Annotated[list[Annotated[str, Meta(max_length=128)]], Meta(max_length=64)]
_Level = Literal["debug", "info", "warn", "error"]
Status = Literal["waiting", "building", "ready", "error"]


class _Asked(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A body that a client sends."""


class _Told(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A body that a client gets. Fields that are UNSET are left out."""


class NewTemplate(_Asked, frozen=True, kw_only=True):
    """Body of ``POST /v3/templates``."""

    name: Annotated[str, Meta(max_length=256)] | None = None
    alias: Annotated[str, Meta(max_length=256)] | None = None
    tags: _Tags | None = None
    cpu_count: Annotated[int, Meta(ge=1, le=1024)] | None = None
    memory_mb: Annotated[int, Meta(ge=1, le=1 << 24)] | None = field(default=None, name="memoryMB")


class AskedLogin(_Asked, frozen=True, kw_only=True):
    """Credentials for an image of a registry that asks for them. The fields depend on its type."""

    type: Annotated[str, Meta(max_length=32)]
    username: Annotated[str, Meta(max_length=512)] = ""
    password: Annotated[str, Meta(max_length=65_536)] = ""
    service_account_json: Annotated[str, Meta(max_length=65_536)] = ""

    def __repr__(self) -> str:
        return "AskedLogin(…)"


class AskedStep(_Asked, frozen=True, kw_only=True):
    """A step of a build. The meaning of ``args`` depends on its type."""

    type: Annotated[str, Meta(max_length=32)]
    args: Annotated[list[_Text], Meta(max_length=4096)] = []
    files_hash: Annotated[str, Meta(max_length=64)] | None = None
    force: bool | None = None


class NewBuild(_Asked, frozen=True, kw_only=True):
    """Body of ``POST /v2/templates/ID/builds/ID``."""

    from_image: _Ref | None = None
    from_template: _Ref | None = None
    from_image_registry: AskedLogin | None = None
    force: bool | None = None
    steps: Annotated[list[AskedStep], Meta(max_length=1024)] = []
    start_cmd: _Text | None = None
    ready_cmd: _Text | None = None


class NewTags(_Asked, frozen=True, kw_only=True):
    """Body of ``POST`` and ``DELETE /templates/tags``."""

    target: _Ref | None = None
    name: _Ref | None = None
    tags: _Tags = []


class Published(_Asked, frozen=True, kw_only=True):
    """Body of ``PATCH /v2/templates/ID``."""

    public: bool | None = None


class Requested(_Told, frozen=True, kw_only=True):
    """A build that waits to begin."""

    template_id: str = field(name="templateID")
    build_id: str = field(name="buildID")
    public: bool
    names: list[str]
    tags: list[str]
    aliases: list[str]


class Upload(_Told, frozen=True, kw_only=True):
    """Where to send files, unless they are already here."""

    present: bool
    url: str | UnsetType = UNSET


class Entry(_Told, frozen=True, kw_only=True):
    """A line of a build's log."""

    timestamp: datetime
    level: _Level
    message: str
    step: str | UnsetType = UNSET


class Reason(_Told, frozen=True, kw_only=True):
    """Why a build failed, and at which step."""

    message: str
    step: str | UnsetType = UNSET
    log_entries: list[Entry] = []


class BuildStatus(_Told, frozen=True, kw_only=True):
    """The progress of a build, with a page of its log."""

    template_id: str = field(name="templateID")
    build_id: str = field(name="buildID")
    status: Status
    logs: list[str]
    log_entries: list[Entry]
    reason: Reason | UnsetType = UNSET


class Alias(_Told, frozen=True, kw_only=True):
    """The template that has a name."""

    template_id: str = field(name="templateID")
    public: bool


class AssignedTags(_Told, frozen=True, kw_only=True):
    """Tags that now mean the build."""

    tags: list[str]
    build_id: str = field(name="buildID")


class Tag(_Told, frozen=True, kw_only=True):
    """A tag, and the build that it means."""

    tag: str
    build_id: str = field(name="buildID")
    created_at: datetime


class ListedTemplate(_Told, frozen=True, kw_only=True):
    """A template in a list."""

    template_id: str = field(name="templateID")
    build_id: str = field(name="buildID")
    cpu_count: int
    memory_mb: int = field(name="memoryMB")
    disk_size_mb: int = field(name="diskSizeMB", default=0)
    public: bool
    aliases: list[str]
    names: list[str]
    created_at: datetime
    updated_at: datetime
    created_by: Any = None
    last_spawned_at: datetime | None = None
    spawn_count: int = 0
    build_count: int
    envd_version: str
    build_status: Status


class ListedBuild(_Told, frozen=True, kw_only=True):
    """A build of a template."""

    build_id: str = field(name="buildID")
    status: Status
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | UnsetType = UNSET
    cpu_count: int
    memory_mb: int = field(name="memoryMB")
    envd_version: str


class TemplateDetail(_Told, frozen=True, kw_only=True):
    """A template with its builds."""

    template_id: str = field(name="templateID")
    public: bool
    aliases: list[str]
    names: list[str]
    created_at: datetime
    updated_at: datetime
    last_spawned_at: datetime | None = None
    spawn_count: int = 0
    builds: list[ListedBuild]
