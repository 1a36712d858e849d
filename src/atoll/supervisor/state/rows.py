"""What the database keeps of sandboxes, snapshots, volumes, teams and keys."""

from __future__ import annotations

from typing import Literal

import msgspec

from atoll.types import (
    BuildInfo,
    EgressPolicy,
    KeyInfo,
    Lifecycle,
    Limits,
    OnCrash,
    Quotas,
    Recovery,
    SandboxInfo,
    SandboxState,
    Service,
    SnapshotInfo,
    TagInfo,
    TeamInfo,
    TemplateInfo,
    VolumeInfo,
)

OperationKind = Literal["create", "fork", "suspend", "wake", "snapshot", "rollback", "stop"]


class Versions(msgspec.Struct, frozen=True):
    """The engine and guest agent, by content hash, that a machine or a checkpoint was made with."""

    engine: str
    agent: str


class SandboxRow(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox. ``disk`` names the directory of its writable layer; ``stack`` the frozen layers below it, top first.

    ``machine`` is the engine's record of the machine that runs it, ``link_id`` the link that it has, or had while
    suspended. ``versions`` belong to the machine, or to the checkpoint of a suspended one. ``generation`` counts
    the machines that went on from one memory. ``engine_disk`` says that the engine keeps what is changed on the disk,
    and that it is in each checkpoint; then there are no layers. ``created_boot_s`` and ``ends_boot_s`` are when it was
    made and when its lease ends by the clock of the host's boot ``host_boot``, see ``Clock``. ``relayering`` says that
    it sleeps only while it is put on another layer.
    """

    sandbox_id: str
    name: str | None
    image: str
    image_digest: str
    state: SandboxState
    created_at: float
    changed_at: float
    env: dict[str, str]
    metadata: dict[str, str]
    network: EgressPolicy
    limits: Limits
    trust_host_ca: bool
    user: str
    cwd: str
    disk: str
    stack: tuple[str, ...]
    generation: int
    machine_uid: str
    versions: Versions
    engine_disk: bool = False
    start: bool = False
    services: tuple[Service, ...] = ()
    on_crash: OnCrash = "reboot"
    lifecycle: Lifecycle = Lifecycle()
    started_at: float = 0.0
    stopped_at: float | None = None
    ends_at: float | None = None
    has_memory: bool = True
    volumes: dict[str, str] = {}
    team: str | None = None
    attributes: dict[str, str] = {}
    host_boot: str = ""
    created_boot_s: float = 0.0
    ends_boot_s: float | None = None
    machine_id: str | None = None
    machine: bytes | None = None
    link_id: str | None = None
    snapshot_id: str | None = None
    reason: str | None = None
    recovered: Recovery | None = None
    relayering: bool = False

    def info(self) -> SandboxInfo:
        """What a client is told."""
        names = (name for name in SandboxInfo.__struct_fields__ if name != "limits_in_force")
        return SandboxInfo(**{name: getattr(self, name) for name in names})

    def but(self, **changes: object) -> SandboxRow:
        """The same row with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class SnapshotRow(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot; ``stack`` is its disk, top first, and its memory lies in the directory of its id.

    With ``engine_disk`` the disk lies there too. ``changed_at`` is 0 until it is changed.
    """

    snapshot_id: str
    name: str | None
    comment: str
    image: str
    image_digest: str
    sandbox_id: str
    parent_id: str | None
    created_at: float
    memory_bytes: int
    disk_bytes: int
    stopped_ms: float
    stack: tuple[str, ...]
    versions: Versions
    generation: int
    env: dict[str, str]
    network: EgressPolicy
    limits: Limits
    trust_host_ca: bool
    user: str
    cwd: str
    engine_disk: bool = False
    start: bool = False
    services: tuple[Service, ...] = ()
    on_crash: OnCrash = "reboot"
    volumes: dict[str, str] = {}
    team: str | None = None
    build_id: str | None = None
    changed_at: float = 0.0

    def info(self) -> SnapshotInfo:
        """What a client is told."""
        values = {name: getattr(self, name) for name in SnapshotInfo.__struct_fields__}
        return SnapshotInfo(**values)

    def but(self, **changes: object) -> SnapshotRow:
        """The same row with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class VolumeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A volume; its files lie in the directory of its id."""

    volume_id: str
    name: str
    team: str | None
    created_at: float

    def info(self) -> VolumeInfo:
        """What a client is told."""
        return VolumeInfo(
            volume_id=self.volume_id, name=self.name, team=self.team, created_at=self.created_at
        )

    def but(self, **changes: object) -> VolumeRow:
        """The same row with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class TeamRow(msgspec.Struct, frozen=True, kw_only=True):
    """A team, known by its name."""

    name: str
    created_at: float
    changed_at: float
    quotas: Quotas = Quotas()

    def info(self) -> TeamInfo:
        """What a client is told."""
        return TeamInfo(name=self.name, created_at=self.created_at, quotas=self.quotas)

    def but(self, **changes: object) -> TeamRow:
        """The same row with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A key of a team; ``hash`` is all that is kept of the key itself, see ``key_hash``."""

    key_id: str
    team: str
    name: str
    prefix: str
    hash: str
    created_at: float
    changed_at: float
    expires_at: float | None = None
    used_at: float | None = None
    revoked_at: float | None = None

    def info(self) -> KeyInfo:
        """What a client is told."""
        return KeyInfo(**{name: getattr(self, name) for name in KeyInfo.__struct_fields__})

    def but(self, **changes: object) -> KeyRow:
        """The same row with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class TemplateRow(msgspec.Struct, frozen=True, kw_only=True):
    """A template with its builds, the newest last."""

    template_id: str
    name: str | None
    team: str | None
    public: bool
    created_at: float
    changed_at: float
    tags: dict[str, TagInfo]
    builds: tuple[BuildInfo, ...]

    def info(self) -> TemplateInfo:
        """What a client is told."""
        values = {name: getattr(self, name) for name in TemplateInfo.__struct_fields__}
        return TemplateInfo(**{**values, "builds": list(self.builds)})

    def but(self, **changes: object) -> TemplateRow:
        """The same row with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """A step that was built once: ``step_key`` says what led to it, ``snapshot_id`` has what came of it."""

    step_key: str
    snapshot_id: str
    created_at: float
    used_at: float


class OperationRow(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that was begun and has not ended; ``link_id`` is the link that a waking uses.

    One that makes sandboxes goes by the id of the first that it makes.
    """

    sandbox_id: str
    kind: OperationKind
    created_at: float
    link_id: str | None = None


KeptRow = SandboxRow | SnapshotRow | VolumeRow | TeamRow | KeyRow | TemplateRow
"""Those that have a copy beside what they describe."""

KEYS: dict[type[KeptRow] | type[StepRow] | type[OperationRow], str] = {
    SandboxRow: "sandbox_id",
    SnapshotRow: "snapshot_id",
    VolumeRow: "volume_id",
    TeamRow: "name",
    KeyRow: "key_id",
    TemplateRow: "template_id",
    StepRow: "step_key",
    OperationRow: "sandbox_id",
}
"""The field that tells rows of a kind from each other."""


def key_of(row: KeptRow | StepRow | OperationRow) -> str:
    """What tells a row from the others of its kind."""
    key: str = getattr(row, KEYS[type(row)])
    return key
