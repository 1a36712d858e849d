"""Sandboxes: what is asked for and what is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from atoll.errors import InvalidSpecError
from atoll.types.given import check_choice, check_kind, check_text, check_texts, copied
from atoll.types.lifecycle import Lifecycle
from atoll.types.limits import Limits

EgressPolicy = Literal["internet", "none"]
"""What a sandbox may reach: TCP and DNS at public addresses, or nothing."""

OnCrash = Literal["reboot", "rollback", "stop"]
"""What the next use of a crashed sandbox does: start it from its disk, go back to its newest snapshot, or refuse."""

OWN_ATTRIBUTES = "own_"
"""What the names of attributes begin with that are one sandbox's own: its forks have not got them."""

ATOLLS_ATTRIBUTES = "atoll."
"""What the names of attributes begin with that atoll itself gives, and nobody else."""

BUILD_ATTRIBUTE = f"{ATOLLS_ATTRIBUTES}build"
"""The attribute of a sandbox in which a template is built: the build's id."""

SandboxState = Literal["creating", "running", "paused", "suspended", "crashed", "killed"]


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """That a sandbox went on after a crash without what was in its memory.

    Args:
        at: When it went on, in Unix seconds.
        how: What it went on from: its ``"disk"`` as the crash left it, its newest ``"snapshot"``, or the newest
            ``"checkpoint"``, where the engine keeps the disk.
        reason: Why it had crashed.
    """

    at: float
    how: Literal["disk", "snapshot", "checkpoint"]
    reason: str

    @property
    def outcome(self) -> str:
        """What happened then, for people."""
        what = {
            "disk": "started again from its disk",
            "snapshot": "went back to its newest snapshot",
            "checkpoint": "went back to its newest checkpoint",
        }
        return f"{what[self.how]}; what was in its memory since is lost"

    def __str__(self) -> str:
        return f"crashed ({self.reason}) and {self.outcome}"


class SandboxSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sandbox that somebody wants.

    Args:
        image: Name of the image to start from. None means ``base``, or the snapshot's image with ``from_snapshot``.
        name: Unique in the home while the sandbox lives; ``[a-z0-9][a-z0-9-]{0,62}``. None gives it no name.
        env: Variables for every program that is started in it.
        metadata: The caller's own labels, to filter lists by.
        network: ``"internet"`` lets TCP and DNS out to public addresses; ``"none"`` lets nothing out. None is what the
            snapshot's sandbox had, and else ``"internet"``.
        from_snapshot: Id or name of the snapshot to restore, memory and disk.
        template: The template to start from instead, ``NAME`` or ``NAME:TAG``, of ``team``.
        limits: How much it may use. With ``from_snapshot``, what is None is the snapshot's.
        best_effort: Make it even where this host cannot hold one of the limits.
        on_crash: What the next use does after a crash: ``"reboot"`` starts it from its disk as it is, ``"rollback"``
            brings its newest snapshot back, memory and disk (without one: as ``"reboot"``), ``"stop"`` refuses until
            somebody resumes it or rolls it back. None means ``"reboot"``, or what the snapshot's sandbox had.
        start: Run the image's own program (its entry point with its arguments) when the sandbox boots. None is what the
            snapshot's sandbox does, and else False; a snapshot's cannot be changed.
        trust_host_ca: Trust inside the CA certificates that the host trusts beyond the image's own. None is what the
            snapshot's sandbox does, and else True; a snapshot's cannot be changed.
        lifecycle: How long it may run, and what happens then. None means no lease; with ``from_snapshot`` too.
        volumes: Names of volumes by the absolute path where each appears inside.
        team: Whom it belongs to; None is nobody, as on a computer that one person uses.
        attributes: What the face that made it wants to remember of it; its info tells them, and no list is filtered by
            them. A fork has the same, but for those whose names begin with ``own_``.
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
    volumes: dict[str, str] = {}
    team: str | None = None
    attributes: dict[str, str] = {}

    def __post_init__(self) -> None:
        for name in ("env", "metadata", "volumes", "attributes"):
            check_texts(name, getattr(self, name))
        for name in ("image", "name", "from_snapshot", "template", "team"):
            if getattr(self, name) is not None:
                check_text(name, getattr(self, name))
        check_kind("limits", self.limits, Limits)
        check_kind("lifecycle", self.lifecycle, Lifecycle)
        if self.network is not None:
            check_choice("network", self.network, get_args(EgressPolicy))
        if self.on_crash is not None:
            check_choice("on_crash", self.on_crash, get_args(OnCrash))


def users_attributes(given: Mapping[str, str] | None) -> dict[str, str]:
    """The attributes that somebody gives a new sandbox; empty for None.

    Raises:
        InvalidSpecError: They are no texts, or a name is one of atoll's own.
    """
    attributes = copied("attributes", given)
    for name in attributes:
        if name.startswith(ATOLLS_ATTRIBUTES):
            raise InvalidSpecError(
                f"the attribute {name!r} is atoll's own",
                hint=f"give it a name that does not begin with {ATOLLS_ATTRIBUTES}",
            )
    return attributes


class SandboxInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox as the supervisor sees it. Times are Unix seconds.

    ``snapshot_id`` is the snapshot that its disk and memory last came from or were last kept in: the parent of the
    next snapshot. ``reason`` says why a crashed sandbox crashed. ``user`` and ``cwd`` are what ``run``, ``exec``
    and ``files`` act as and in when the call names none. ``limits`` are those that were asked for,
    ``limits_in_force`` also the default ones. With ``engine_disk`` its disk is the engine's own, see the guide's
    page on states. ``started_at`` is when it last began to run, ``stopped_at`` when it last ceased to (paused,
    asleep or crashed), ``ends_at`` when its lease ends, if it has one. ``has_memory`` is False when the processes
    of one that sleeps are gone, and only its disk was kept. ``recovered`` tells of the newest crash after which it
    went on; it is of the current run when its ``at`` is not before ``started_at``.
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
    volumes: dict[str, str] = {}
    team: str | None = None
    attributes: dict[str, str] = {}
    image_digest: str = ""
    recovered: Recovery | None = None
    limits_in_force: Limits = Limits()


class SandboxPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list, oldest first. ``cursor`` asks for the next page; None ends the list."""

    sandboxes: list[SandboxInfo]
    cursor: str | None = None
