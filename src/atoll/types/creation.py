"""What a new sandbox is made of, and the values that ``Sandbox.create`` takes for what belongs together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

import msgspec

from atoll.errors import InvalidSpecError
from atoll.types.delegation import DelegationSpec
from atoll.types.egress import EgressPolicy
from atoll.types.lifecycle import Lifecycle
from atoll.types.limits import Limits
from atoll.types.models import ModelAccess
from atoll.types.progress import Progress
from atoll.types.sandboxes import OnCrash, Ports
from atoll.types.services import ServiceSpec, check_services
from atoll.types.snapshots import Snapshot, SnapshotInfo
from atoll.types.templates import Template, TemplateInfo
from atoll.types.volumes import VolumeMount

Source = str | Snapshot | SnapshotInfo | Template | TemplateInfo
"""What a sandbox starts from: a text is an image, the others are stored states."""


class Boot(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """How a sandbox boots, and what runs in it from then on.

    Args:
        start: Run the image's own program as an ordinary process with the tag ``image``, also after a
            crash. None means False, or the snapshot's setting.
        trust_host_ca: Trust the host's CA certificates inside, in addition to the image's own. None means
            True, or the snapshot's setting. A snapshot or template fixes this and ``start``; another
            value is refused.
        services: Programs that it keeps running, see ``services.add``. With a snapshot they come to the
            snapshot's, and take the place of those with the same name.
        on_crash: What the next use does after a crash. ``"reboot"`` starts the sandbox from its disk,
            ``"rollback"`` restores its newest snapshot, and ``"stop"`` refuses until ``resume`` or
            ``rollback``. None means ``"reboot"``, or the snapshot's setting.
        best_effort: Make the sandbox even if this host cannot enforce one of the limits.
    """

    start: bool | None = None
    trust_host_ca: bool | None = None
    services: Sequence[ServiceSpec] = ()
    on_crash: OnCrash | None = None
    best_effort: bool = False

    def __post_init__(self) -> None:
        check_services(self.services)


class Hosting(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """Whose a sandbox is, what a front end keeps with it, and who reaches it through ``atoll serve``.

    Args:
        team: The team that owns the sandbox; None means no team.
        attributes: Values stored for the calling program and returned by ``info`` and ``list``. Names
            that begin with ``atoll.`` are reserved and refused. Forks do not inherit names that begin
            with ``own_``.
        ports: Whom ``atoll serve`` lets reach its ports. With ``"open"`` that is everybody who knows its id,
            with ``"closed"`` only who has its traffic token or a signed link of ``url``. Its forks have
            the same. On this machine, ``ports.forward`` and ``ports.dial`` reach them either way.
        idempotency_key: A text that names this very request, for a caller that repeats it after an error.
            While the sandbox of an earlier call with the key lives, that sandbox is returned, in whatever
            state it is. Keys are each team's own.
        delegation: For whom it acts, what it may do at most, and until when. None is the caller's own
            delegation, or with a snapshot a child of the one that the snapshot was made under.
        models: The models that it may use, of those that the home offers, and how much of them. Its forks share the
            budget. None is none, or with a snapshot what that has.
    """

    team: str | None = None
    attributes: Mapping[str, str] | None = None
    ports: Ports = "open"
    idempotency_key: str | None = None
    delegation: DelegationSpec | None = None
    models: ModelAccess | None = None


class Wait(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """How a call waits for a new sandbox.

    Args:
        within_s: Give up after this many seconds, a pull or build of the image included, and leave no
            sandbox. The pull or build itself continues, so a later call finds more of it done. None
            waits for up to half an hour.
        on_progress: Called with progress reports while the call takes long. None shows them as a line on
            standard error if that is a terminal and ``ATOLL_PROGRESS`` is not ``off``. False shows nothing.
    """

    within_s: float | None = None
    on_progress: Callable[[Progress], Any] | Literal[False] | None = None


class SandboxOptions(TypedDict, total=False):
    """The arguments of ``Sandbox.create`` that ``connect_or_create`` takes too; each means the same there."""

    env: Mapping[str, str] | None
    metadata: Mapping[str, str] | None
    network: EgressPolicy | None
    limits: Limits | None
    lifecycle: Lifecycle | None
    volumes: Mapping[str, str | VolumeMount] | None
    boot: Boot | None
    hosting: Hosting | None
    wait: Wait | None


def one_source(
    *, image: str | None = None, template: str | None = None, snapshot: str | None = None
) -> Source | None:
    """Return what a sandbox starts from, where each kind of it has a setting of its own.

    Raises:
        InvalidSpecError: More than one is given.
    """
    given: list[Source] = [] if image is None else [image]
    if template is not None:
        given.append(Template(template))
    if snapshot is not None:
        given.append(Snapshot(snapshot))
    if len(given) > 1:
        raise InvalidSpecError("a template, an image and a snapshot exclude each other", hint="give only one")
    return given[0] if given else None
