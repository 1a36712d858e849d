"""Requests for sandboxes, and the sandboxes that exist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from atoll.errors import InvalidSpecError
from atoll.types.brief import brief
from atoll.types.delegation import Delegation, DelegationSpec
from atoll.types.egress import EgressPolicy, check_network
from atoll.types.given import check_choice, check_kind, check_text, check_texts, copied
from atoll.types.lifecycle import Idle, Lifecycle, SleepCause
from atoll.types.limits import Limits
from atoll.types.models import ModelAccess, check_access
from atoll.types.notebook import html_of
from atoll.types.services import ServiceSpec, check_services
from atoll.types.volumes import VolumeMount, check_volumes

OnCrash = Literal["reboot", "rollback", "stop"]
"""What the next use of a crashed sandbox does: boot it from its disk, go back to its newest snapshot, or refuse."""

Ports = Literal["open", "closed"]
"""Who reaches its ports by `atoll serve`: everybody with its id, or only clients with a token or link."""

OWN_ATTRIBUTES = "own_"
"""The prefix of attributes that belong to one sandbox: its forks do not get them."""

ATOLLS_ATTRIBUTES = "atoll."
"""The prefix of attributes that only atoll itself sets."""

BUILD_ATTRIBUTE = f"{ATOLLS_ATTRIBUTES}build"
"""The attribute of a sandbox in which a template is built: the build's id."""

ORIGIN_ATTRIBUTE = f"{ATOLLS_ATTRIBUTES}origin"
"""The attribute of a sandbox made of a snapshot that may not reach the internet: the snapshot's id."""

_KEY_CHARACTERS = 255

SandboxState = Literal["creating", "running", "paused", "suspended", "crashed", "killed"]


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """A crash after which a sandbox continued without the contents of its memory.

    Args:
        at: When it continued, in Unix seconds.
        how: What it continued from: its ``"disk"`` as the crash left it, its newest ``"snapshot"``, or the
            newest ``"checkpoint"`` where the engine keeps the disk.
        reason: Why it had crashed.
        snapshot_id: The snapshot that it went back to, if any.
        age_s: How old that state was when it crashed, in seconds: 0 for its disk, None if it is not known.
        automatic: Whether it continued before its next use, see ``Lifecycle.auto_recover``.
        times: How often it has crashed in a row, each time soon after it had continued.
    """

    at: float
    how: Literal["disk", "snapshot", "checkpoint"]
    reason: str
    snapshot_id: str | None = None
    age_s: float | None = None
    automatic: bool = False
    times: int = 1

    @property
    def outcome(self) -> str:
        """Return the outcome as text for people."""
        what = {
            "disk": "booted from its disk",
            "snapshot": "went back to its newest snapshot",
            "checkpoint": "went back to its newest checkpoint",
        }
        age = f", {self.age_s:.0f} s old" if self.age_s else ""
        return f"{what[self.how]}{age}; what was in its memory since is lost"

    def __str__(self) -> str:
        return f"crashed ({self.reason}) and {self.outcome}"


class SnapshotFailure(msgspec.Struct, frozen=True, kw_only=True):
    """An automatic snapshot that failed. The sandbox keeps running.

    Args:
        at: When, in Unix seconds.
        reason: Why.
    """

    at: float
    reason: str


class Unplugged(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """A sandbox was cut off from its network and frozen, and is kept for inspection.

    Args:
        at: When, in Unix seconds.
        reason: Why, as the caller or the rule of its policy said.
        ran: Whether it ran then; if so, ``replug`` lets it run again.
    """

    at: float
    reason: str
    ran: bool = False


class SandboxSpec(
    msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """A request for a sandbox.

    Args:
        image: Name of the image to start from. None means ``base``, or the snapshot's image with
            ``from_snapshot``.
        name: Unique in the home while the sandbox lives; ``[a-z0-9][a-z0-9-]{0,62}``. None gives it no name.
        env: Variables for every program that is started in it.
        metadata: The caller's own labels, by which lists can be filtered.
        network: What it may reach: a ``Policy``, or a preset's name. None takes the setting of the
            snapshot's sandbox, or ``"internet"`` without a snapshot.
        from_snapshot: Id or name of the snapshot to restore, memory and disk.
        template: The template to start from instead, ``NAME`` or ``NAME:TAG``, of ``team``.
        limits: How much it may use. With ``from_snapshot``, a limit of None is the snapshot's.
        best_effort: Create it even if this host cannot enforce one of the limits.
        on_crash: What the next use does after a crash. ``"reboot"`` starts it from its disk as it is.
            ``"rollback"`` restores its newest snapshot, memory and disk, or reboots it if there is none.
            ``"stop"`` refuses until a user resumes it or rolls it back. None takes the setting of the
            snapshot's sandbox, or ``"reboot"``.
        start: Run the image's own program (its entry point with its arguments) when the sandbox boots. None
            takes the setting of the snapshot's sandbox, or False. A snapshot's setting cannot be changed.
        trust_host_ca: Make the sandbox trust the CA certificates that the host trusts beyond the image's own.
            None takes the setting of the snapshot's sandbox, or True. A snapshot's setting cannot be changed.
        lifecycle: How long it may run, and what happens then. None means no lease, even with
            ``from_snapshot``.
        volumes: The volume, by the absolute path where it appears inside: its name or id, or a
            ``VolumeMount``. With ``from_snapshot`` it takes the place of the snapshot's volume at that path,
            with the same access.
        team: The team it belongs to. None is no team, as on a computer that one person uses.
        attributes: Values that the front end which made it stores with it. Its info returns them, but lists
            cannot filter by them. A fork gets a copy, without those whose names begin with ``own_``.
        idempotency_key: Names this request, for a caller that repeats it. While its sandbox lives, a request
            of the team with the same key and spec gets that sandbox. A request with the same key and another
            spec is refused.
        services: Programs that it keeps running. With ``from_snapshot`` they join the snapshot's services,
            and replace those with the same name.
        ports: Who reaches its ports through ``atoll serve``: with ``"open"`` everybody who knows its id, with
            ``"closed"`` only a client with its traffic token or a signed link. Its forks have the same.
        delegation: What it acts under. None is the caller's own, or a child of the snapshot's.
        models: The models that it may use, and how much of them. None is none, or with ``from_snapshot`` what the
            snapshot's sandbox of the same team had, of the same budget.
    """

    image: str | None = None
    name: str | None = None
    env: dict[str, str] = {}
    metadata: dict[str, str] = {}
    network: EgressPolicy | None = None
    from_snapshot: str | None = None
    template: str | None = None
    limits: Limits = Limits()
    best_effort: bool = False
    on_crash: OnCrash | None = None
    start: bool | None = None
    trust_host_ca: bool | None = None
    lifecycle: Lifecycle = Lifecycle()
    volumes: dict[str, str | VolumeMount] = {}
    team: str | None = None
    attributes: dict[str, str] = {}
    idempotency_key: str | None = None
    services: list[ServiceSpec] = []
    ports: Ports = "open"
    delegation: DelegationSpec | None = None
    models: ModelAccess | None = None

    def __post_init__(self) -> None:
        for name in ("env", "metadata", "attributes"):
            check_texts(name, getattr(self, name))
        check_volumes(self.volumes)
        for name in ("image", "name", "from_snapshot", "template", "team"):
            if getattr(self, name) is not None:
                check_text(name, getattr(self, name))
        check_services(self.services)
        check_kind("limits", self.limits, Limits)
        check_kind("lifecycle", self.lifecycle, Lifecycle)
        if self.delegation is not None:
            check_kind("delegation", self.delegation, DelegationSpec)
        if self.models is not None:
            check_access(self.models)
        if self.idempotency_key is not None:
            _check_key(self.idempotency_key)
        if self.network is not None:
            check_network(self.network)
        if self.on_crash is not None:
            check_choice("on_crash", self.on_crash, get_args(OnCrash))
        check_choice("ports", self.ports, get_args(Ports))

    def checked(self) -> SandboxSpec:
        """Return this spec if its limits and lifecycle are valid. JSON has neither NaN nor infinity.

        Raises:
            InvalidSpecError: A value is invalid; the message says which.
        """
        self.limits.check()
        self.lifecycle.check()
        return self


def _check_key(key: object) -> None:
    hint = "give 1 to 255 printable characters"
    check_text("idempotency_key", key, hint=hint)
    if not isinstance(key, str) or not 1 <= len(key) <= _KEY_CHARACTERS or not key.isprintable():
        raise InvalidSpecError(f"idempotency_key is {key!r}"[:300], hint=hint)


def users_attributes(given: Mapping[str, str] | None) -> dict[str, str]:
    """Return the attributes given for a new sandbox; empty for None.

    Raises:
        InvalidSpecError: A value is not text, or a name is reserved by atoll.
    """
    attributes = copied("attributes", given)
    for name in attributes:
        if name.startswith(ATOLLS_ATTRIBUTES):
            raise InvalidSpecError(
                f"the attribute {name!r} is atoll's own",
                hint=f"give it a name that does not begin with {ATOLLS_ATTRIBUTES}",
            )
    return attributes


class SandboxInfo(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """A sandbox as the supervisor sees it. Times are Unix seconds.

    ``snapshot_id`` is the snapshot that its disk and memory last came from or were last saved in: the parent
    of the next snapshot. ``reason`` says why a crashed sandbox crashed.

    ``user`` and ``cwd`` are the defaults of ``run``, ``exec`` and ``files``. ``limits`` are those that were
    requested; ``limits_in_force`` also includes the default ones. With ``engine_disk`` the engine keeps its
    disk, see the guide's page on states.

    ``started_at`` is when it last began to run, and ``stopped_at`` when it last stopped (paused, asleep or
    crashed). ``ends_at`` is when its lease ends, if it has one. ``has_memory`` is False when a sleeping
    sandbox kept only its disk, and its processes are gone.

    ``sleep_cause`` says why a paused or suspended one sleeps; None if that was not recorded. ``idle`` says
    how idle an awake one is, and when it will sleep; None if it does not sleep by itself. ``wakes_at`` is
    when a sleeping one wakes by itself, as a program inside asked.

    ``unresponsive_since`` is when a running one ceased to answer: its kernel or its agent hangs, or is far
    too busy. None if it answers.

    ``recovered`` describes the newest crash after which it continued. It concerns the current run if its
    ``at`` is not before ``started_at``. ``unplugged`` says since when it is cut off, and why; None means that
    it is not.

    ``snapshot_failed`` says why the last automatic snapshot failed. None means that it did not fail, or that
    there is none.

    ``made_by`` says who made it: a program with its process id and user, or a key of a server. None means
    that nobody told. ``erased_at`` is when it is erased because the program that held it in ``with`` is gone;
    None is never. ``delegation`` says for whom it
    acts, what it may do, and until when. ``models`` are those that it may use; None is none.
    """

    sandbox_id: str
    name: str | None
    image: str
    state: SandboxState
    created_at: float
    changed_at: float
    env: dict[str, str]
    metadata: dict[str, str]
    network: EgressPolicy
    limits: Limits
    user: str
    cwd: str
    engine_disk: bool = False
    on_crash: OnCrash = "reboot"
    snapshot_id: str | None = None
    reason: str | None = None
    lifecycle: Lifecycle = Lifecycle()
    started_at: float = 0.0
    stopped_at: float | None = None
    ends_at: float | None = None
    has_memory: bool = True
    volumes: dict[str, VolumeMount] = {}
    team: str | None = None
    attributes: dict[str, str] = {}
    image_digest: str = ""
    recovered: Recovery | None = None
    unplugged: Unplugged | None = None
    snapshot_failed: SnapshotFailure | None = None
    limits_in_force: Limits = Limits()
    services: tuple[ServiceSpec, ...] = ()
    ports: Ports = "open"
    sleep_cause: SleepCause | None = None
    idle: Idle | None = None
    wakes_at: float | None = None
    made_by: str | None = None
    erased_at: float | None = None
    unresponsive_since: float | None = None
    delegation: Delegation | None = None
    models: ModelAccess | None = None

    def __repr__(self) -> str:
        return brief(self, "sandbox_id", "name", "state", "image")

    def _repr_html_(self) -> str:
        return html_of(self)


class SandboxPage(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """One page of a list, oldest first. ``cursor`` asks for the next page; None is the end of the list."""

    sandboxes: list[SandboxInfo]
    cursor: str | None = None
