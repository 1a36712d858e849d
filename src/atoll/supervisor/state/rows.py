"""The rows of the database: the things of a home, and the operations in progress."""

from __future__ import annotations

import operator
from typing import Any, Literal

import msgspec

from atoll.policy import masked
from atoll.types import (
    BuildInfo,
    Delegation,
    EgressPolicy,
    KeyInfo,
    Lifecycle,
    Limits,
    ModelAccess,
    OnCrash,
    Ports,
    Quotas,
    Recovery,
    SandboxInfo,
    SandboxState,
    SecretInfo,
    ServiceRun,
    ServiceSpec,
    SleepCause,
    SnapshotFailure,
    SnapshotInfo,
    StartCommand,
    TagInfo,
    TeamInfo,
    TemplateInfo,
    Unplugged,
    VolumeInfo,
    VolumeMount,
)

_TOLD_APART = ("idle", "limits_in_force", "models", "network", "unresponsive_since")
_TOLD = tuple(name for name in SandboxInfo.__struct_fields__ if name not in _TOLD_APART)
# This is faster than one by one: very many may be listed at once.
_told = operator.attrgetter(*_TOLD)

LEFT_MOST_S = 3660.0
"""The seconds until a sandbox is erased that its last client has left behind."""

OperationKind = Literal["create", "fork", "suspend", "wake", "snapshot", "rollback", "promote", "stop"]


class Versions(msgspec.Struct, frozen=True):
    """The engine and guest agent, by content hash, that made a machine or a checkpoint.

    ``engine_name`` is the engine's name in the registry, ``engine_version`` the version of its program.
    """

    engine: str
    agent: str
    engine_name: str = "gvisor"
    engine_version: str = ""


class ModelGrant(msgspec.Struct, frozen=True):
    """The models that a sandbox may use, and the budget that it spends, which its copies share."""

    access: ModelAccess
    budget: str


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a sandbox and its snapshots share, and that a machine needs to continue from them.

    - ``stack`` names the frozen layers of the disk, top first.
    - ``versions`` are those of the machine, or of the checkpoint.
    - ``generation`` counts the machines that continued from one memory.
    - ``engine_disk`` says that the engine keeps the changes on the disk, and each checkpoint contains them.
      There are then no layers.
    - ``volumes`` are the volumes, named by their ids, by the paths where they are mounted.
    - ``delegation`` is what the sandbox acts under, all of it, so that it is as lasting as the row. None allows
      all.
    - ``models`` are those that it may use. None is none.
    """

    image: str
    image_digest: str
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
    start_commands: tuple[StartCommand, ...] = ()
    services: tuple[ServiceSpec, ...] = ()
    on_crash: OnCrash = "reboot"
    volumes: dict[str, VolumeMount] = {}
    team: str | None = None
    delegation: Delegation | None = None
    models: ModelGrant | None = None

    @property
    def delegation_uid(self) -> str | None:
        """The uid of what it acts under."""
        return None if self.delegation is None else self.delegation.uid

    def has_ended(self, now_s: float) -> bool:
        """Whether its delegation has ended, so that nothing wakes it any more."""
        return self.delegation is not None and self.delegation.has_ended(now_s)

    @property
    def volume_ids(self) -> set[str]:
        """The volumes that it mounts."""
        return {mount.volume for mount in self.volumes.values()}

    def setup(self) -> dict[str, Any]:
        """These fields, for a row of the other kind."""
        return {name: getattr(self, name) for name in Setup.__struct_fields__}


class Idempotency(msgspec.Struct, frozen=True, kw_only=True):
    """The key of the request that made a sandbox, and a digest of the rest of the request."""

    key: str
    digest: str


class SandboxRow(Setup, frozen=True, kw_only=True):
    """A sandbox. ``disk`` names the directory of its writable layer.

    - ``machine`` is the engine's record of its machine.
    - ``link_id`` is the link that it has, or had while suspended.
    - ``created_boot_s`` and ``ends_boot_s`` are its creation and its lease's end by the clock of the host's
      boot ``host_boot``, see ``Clock``.
    - ``crashed_running`` says that it ran when it crashed, so that it may be recovered without a use.
    - ``napping`` says that it sleeps only while its disk is changed below it.
    - ``runs`` has the last run of each service with a schedule.
    - ``idempotency`` is of the request that made it, if that had a key.
    - ``awake_until`` is the time until which a client has asked to keep it awake, in Unix seconds.
    - ``wakes_at`` is the time of a wake that a program inside asked for, in Unix seconds. It is set only
      while the sandbox sleeps.
    - ``promoted`` are the ids of sandboxes whose state it has taken over, newest last.
    - ``made_by`` names its maker, as told by the client or the server.
    - ``is_bound`` says that it is to end with the clients that hold it. ``left_at`` is when the last of them was
      gone, and ``left_boot_s`` the same by the clock of ``host_boot``.
    """

    sandbox_id: str
    name: str | None
    state: SandboxState
    created_at: float
    changed_at: float
    metadata: dict[str, str]
    disk: str
    machine_uid: str
    lifecycle: Lifecycle = Lifecycle()
    started_at: float = 0.0
    stopped_at: float | None = None
    ends_at: float | None = None
    has_memory: bool = True
    attributes: dict[str, str] = {}
    ports: Ports = "open"
    host_boot: str = ""
    created_boot_s: float = 0.0
    ends_boot_s: float | None = None
    machine_id: str | None = None
    machine: bytes | None = None
    link_id: str | None = None
    snapshot_id: str | None = None
    reason: str | None = None
    recovered: Recovery | None = None
    crashed_running: bool = False
    unplugged: Unplugged | None = None
    snapshot_failed: SnapshotFailure | None = None
    napping: bool = False
    runs: dict[str, ServiceRun] = {}
    idempotency: Idempotency | None = None
    promoted: tuple[str, ...] = ()
    sleep_cause: SleepCause | None = None
    awake_until: float | None = None
    wakes_at: float | None = None
    made_by: str | None = None
    is_bound: bool = False
    left_at: float | None = None
    left_boot_s: float | None = None

    @property
    def erased_at(self) -> float | None:
        """When it is erased, because it was left behind."""
        return None if self.left_at is None else self.left_at + LEFT_MOST_S

    @property
    def called(self) -> str:
        """Its name, or else its id."""
        return self.name or self.sandbox_id

    @property
    def awake(self) -> bool:
        """Whether it runs, or will at once when an operation on its disk is over."""
        return self.state == "running" or self.napping

    def info(self) -> SandboxInfo:
        """The information for clients."""
        values = dict(zip(_TOLD, _told(self), strict=True))
        models = None if self.models is None else self.models.access
        return SandboxInfo(**values, network=masked(self.network), models=models)

    def scheduled_from(self, service: ServiceSpec) -> float:
        """Return the moment from which to look for a service's next run: its last run, or its addition."""
        last = self.runs.get(service.name)
        return max(service.added_at, self.created_at, last.at if last else 0.0)

    def but(self, **changes: object) -> SandboxRow:
        """The same row with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class SnapshotRow(Setup, frozen=True, kw_only=True):
    """A snapshot. Its memory, and a disk that the engine keeps, are in the directory of its id.

    ``changed_at`` is 0 until the row changes.
    """

    snapshot_id: str
    name: str | None
    comment: str
    sandbox_id: str
    parent_id: str | None
    created_at: float
    memory_bytes: int
    disk_bytes: int
    stopped_ms: float
    build_id: str | None = None
    automatic: bool = False
    changed_at: float = 0.0

    @property
    def called(self) -> str:
        """Its name, or else its id."""
        return self.name or self.snapshot_id

    def info(self) -> SnapshotInfo:
        """The information for clients."""
        values = {name: getattr(self, name) for name in SnapshotInfo.__struct_fields__ if name != "network"}
        return SnapshotInfo(**values, network=masked(self.network))

    def but(self, **changes: object) -> SnapshotRow:
        """The same row with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class VolumeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A volume; its files are in the directory of its id.

    ``changed_at`` is 0 until the row changes.
    """

    volume_id: str
    name: str
    team: str | None
    created_at: float
    quota_mib: int | None = None
    changed_at: float = 0.0

    def info(self) -> VolumeInfo:
        """The information for clients."""
        return VolumeInfo(**{name: getattr(self, name) for name in VolumeInfo.__struct_fields__})

    def but(self, **changes: object) -> VolumeRow:
        """The same row with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class TeamRow(msgspec.Struct, frozen=True, kw_only=True):
    """A team, identified by its name."""

    name: str
    created_at: float
    changed_at: float
    quotas: Quotas = Quotas()
    ceiling: EgressPolicy | None = None

    def info(self) -> TeamInfo:
        """The information for clients."""
        return TeamInfo(**{name: getattr(self, name) for name in TeamInfo.__struct_fields__})

    def but(self, **changes: object) -> TeamRow:
        """The same row with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A key of a team. ``hash`` is all that is stored of the key itself, see ``key_hash``."""

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
        """The information for clients."""
        return KeyInfo(**{name: getattr(self, name) for name in KeyInfo.__struct_fields__})

    def but(self, **changes: object) -> KeyRow:
        """The same row with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class SecretRow(msgspec.Struct, frozen=True, kw_only=True):
    """A secret. ``sealed`` is all that is stored of its value; the key for it is elsewhere."""

    secret_id: str
    name: str
    team: str | None
    hosts: tuple[str, ...]
    metadata: dict[str, str]
    canary: bool
    version: int
    sealed: bytes
    created_at: float
    changed_at: float

    def info(self) -> SecretInfo:
        """The information for clients."""
        return SecretInfo(**{name: getattr(self, name) for name in SecretInfo.__struct_fields__})

    def but(self, **changes: object) -> SecretRow:
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
        """The information for clients."""
        values = {name: getattr(self, name) for name in TemplateInfo.__struct_fields__}
        return TemplateInfo(**{**values, "builds": list(self.builds)})

    def shown_to(self, team: str | None) -> TemplateInfo:
        """The information for a team; None stands for the home's owner.

        Another team sees only the usable builds of a public template: those with a tag.
        """
        if team is None or team == self.team:
            return self.info()
        tagged = {tag.build_id for tag in self.tags.values()}
        builds = [
            msgspec.structs.replace(each, sandbox_id=None, step=None, reason=None)
            for each in self.builds
            if each.build_id in tagged
        ]
        return msgspec.structs.replace(self.info(), builds=builds)

    def but(self, **changes: object) -> TemplateRow:
        """The same row with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """A built step: ``step_key`` identifies its whole history, ``snapshot_id`` is its result."""

    step_key: str
    snapshot_id: str
    created_at: float
    used_at: float


class DelegationRow(msgspec.Struct, frozen=True, kw_only=True):
    """The root of a chain of delegations: what a key or a local user may do by itself. Others are in the rows
    of their sandboxes and snapshots.
    """

    uid: str
    issuer: str
    created_at: float


class OperationRow(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that has begun and not ended. ``link_id`` is the link that a wake uses.

    An operation that makes sandboxes has the id of the first of them.
    """

    sandbox_id: str
    kind: OperationKind
    created_at: float
    link_id: str | None = None


class BudgetRow(msgspec.Struct, frozen=True, kw_only=True):
    """A budget for models: how much is spent, and what the edge may still spend of it. Both together never
    exceed the limit. Money is in nanos of a dollar.

    - ``until`` is the end of the day that it counts, in Unix seconds; 0 counts everything.
    - A limit of None is none.
    """

    budget: str
    created_at: float
    until: int
    limit_tokens: int | None = None
    limit_nanos: int | None = None
    spent_tokens: int = 0
    spent_nanos: int = 0
    allotted_tokens: int = 0
    allotted_nanos: int = 0

    def but(self, **changes: object) -> BudgetRow:
        """The same row with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class ModelUseRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox has used of a model on a day. ``use_key`` is all of that."""

    use_key: str
    created_at: float
    day: str
    sandbox_id: str
    team: str | None
    provider: str
    model: str
    requests: int = 0
    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    estimated: int = 0
    nanos: int = 0

    def but(self, **changes: object) -> ModelUseRow:
        """The same row with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class EdgeRow(msgspec.Struct, frozen=True, kw_only=True):
    """The edge that holds parts of the budgets, and the last of its bills that is counted. There is one row."""

    place: str = "edge"
    created_at: float
    edge: str
    last_bill: int

    def but(self, **changes: object) -> EdgeRow:
        """The same row with some fields changed."""
        return msgspec.structs.replace(self, **changes)


KeptRow = SandboxRow | SnapshotRow | VolumeRow | TeamRow | KeyRow | SecretRow | TemplateRow
"""The rows with a copy beside their files."""

UnkeptRow = StepRow | OperationRow | DelegationRow | BudgetRow | ModelUseRow | EdgeRow
"""The rows without a copy: little is missing if they are lost with the database, and budgets begin anew."""

KEYS: dict[type[KeptRow | UnkeptRow], str] = {
    SandboxRow: "sandbox_id",
    SnapshotRow: "snapshot_id",
    VolumeRow: "volume_id",
    TeamRow: "name",
    KeyRow: "key_id",
    SecretRow: "secret_id",
    TemplateRow: "template_id",
    StepRow: "step_key",
    OperationRow: "sandbox_id",
    DelegationRow: "uid",
    BudgetRow: "budget",
    ModelUseRow: "use_key",
    EdgeRow: "place",
}
"""The field that tells rows of a kind from each other."""


def key_of(row: KeptRow | UnkeptRow) -> str:
    """The value that identifies a row among those of its kind."""
    key: str = getattr(row, KEYS[type(row)])
    return key
