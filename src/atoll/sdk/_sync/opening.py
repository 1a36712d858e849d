# Made by scripts/unasync.py from sdk/_async/opening.py: do not edit.
"""How a program gets a sandbox: a new one, one that exists, or what is known of all of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from atoll.errors import NameTakenError, SandboxNotFoundError
from atoll.protocol import ResumeRequest
from atoll.sdk._sync.link import LONG_S, Link, closed_on_error, ref
from atoll.sdk._sync.listing import listed
from atoll.sdk._sync.reaching import Reaching
from atoll.sdk._sync.snapshots import snapshot_ref
from atoll.sdk._foreign import Kind, foreign_argument, foreign_attribute, made_directly, no_foreign_arguments
from atoll.sdk._io_sync import sleep
from atoll.sdk._leases import lease_of
from atoll.sdk._notices import tell_recovery_since
from atoll.sdk._progress import line_for
from atoll.types import (
    EgressPolicy,
    Lifecycle,
    Limits,
    OnCrash,
    Ports,
    Progress,
    SandboxInfo,
    SandboxOptions,
    SandboxSpec,
    SandboxState,
    ServiceSpec,
    SnapshotInfo,
    VolumeMount,
    check_text,
    copied,
    copied_volumes,
    users_attributes,
)

_FIRST_PAUSE_S = 0.05
_LAST_PAUSE_S = 1.0


class Opening(Reaching, metaclass=Kind):
    """Gives the sandbox class its class methods: the ways to a handle, and questions about all sandboxes."""

    if not TYPE_CHECKING:  # a type checker must go on seeing which names there are

        def __new__(cls, *args: Any, **_: Any) -> Self:
            if not args or not isinstance(args[0], Link):
                raise made_directly(cls)
            return super().__new__(cls)

        def __getattr__(self, name: str) -> Any:
            raise foreign_attribute(self, name)

    def __init__(self, link: Link, info: SandboxInfo, *, kill_at_exit: bool = False) -> None:
        super().__init__(link, info)
        self._kill_at_exit = kill_at_exit

    @classmethod
    @no_foreign_arguments
    def create(
        cls,
        image: str | None = None,
        *,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        network: EgressPolicy | None = None,
        from_snapshot: str | SnapshotInfo | None = None,
        template: str | None = None,
        limits: Limits | None = None,
        best_effort: bool = False,
        on_crash: OnCrash | None = None,
        start: bool | None = None,
        trust_host_ca: bool | None = None,
        ttl_s: float | None = None,
        lifecycle: Lifecycle | None = None,
        volumes: Mapping[str, str | VolumeMount] | None = None,
        team: str | None = None,
        attributes: Mapping[str, str] | None = None,
        ports: Ports = "open",
        keep: bool = False,
        within_s: float | None = None,
        on_progress: Callable[[Progress], Any] | Literal[False] | None = None,
        idempotency_key: str | None = None,
        services: Sequence[ServiceSpec] | None = None,
    ) -> Self:
        """Make a sandbox and return it running. The first sandbox of an image also builds or pulls the image.

        A call that is cancelled or interrupted, or whose process is killed before it returns, leaves no
        sandbox. A pull or build of the image continues.

        Args:
            image: ``base``, or one like ``python:3.12``; None means ``base``, or the snapshot's image with
                ``from_snapshot``.
            name: Unique in the home while the sandbox lives: lower case letters, digits and ``-``.
            env: Variables for every program in it. Snapshots contain them, so do not put secrets here.
            metadata: Your own labels, by which ``list`` can find the sandbox.
            network: What it may reach: a ``Policy``, or ``"none"``, ``"packages"``, ``"web-read-only"`` or
                ``"internet"``. None means the policy stored in the snapshot, or ``"internet"`` without one.
            from_snapshot: Start from the memory and disk of this snapshot, given by id, name or info.
            template: Start from this template instead: ``NAME`` or ``NAME:TAG``, see ``Templates``.
            limits: How much the sandbox may use. With ``from_snapshot``, a limit that is None is the
                snapshot's.
            best_effort: Make the sandbox even if this host cannot enforce one of the limits.
            on_crash: What the next use does after a crash. ``"reboot"`` starts the sandbox from its disk,
                ``"rollback"`` restores its newest snapshot, and ``"stop"`` refuses until ``resume`` or
                ``rollback``. None means ``"reboot"``, or the snapshot's setting.
            start: Run the image's own program as an ordinary process with the tag ``image``, also after a
                crash. None means False, or the snapshot's setting.
            trust_host_ca: Trust the host's CA certificates inside, in addition to the image's own. None means
                True, or the snapshot's setting. A snapshot or template fixes this and ``start``; another
                value is refused.
            ttl_s: Kill the sandbox this many seconds after its start: a short form of
                ``lifecycle=Lifecycle(ttl_s=…)``. Give ``lifecycle`` instead for another end, such as
                ``on_expiry="suspend"``.
            lifecycle: How long the sandbox may run, and what happens then. None means that it stays until it is
                killed, and sleeps after 15 idle minutes unless a program is in ``with`` of it.
            volumes: Maps each absolute path inside to the volume that appears there: its name, or
                ``VolumeMount("NAME", read_only=True)``.
            team: The team that owns the sandbox; None means no team.
            attributes: Values stored for the calling program and returned by ``info`` and ``list``. Names
                that begin with ``atoll.`` are reserved and refused. Forks do not inherit names that begin
                with ``own_``.
            ports: Whom ``atoll serve`` lets reach its ports. With ``"open"`` that is everybody who knows its id,
                with ``"closed"`` only who has its traffic token or a signed link of ``url``. Its forks have
                the same. On this machine, ``ports.forward`` and ``ports.dial`` reach them either way.
            keep: Leave the sandbox alive at the end of ``with``, and if this process dies in it.
            within_s: Give up after this many seconds, a pull or build of the image included, and leave no
                sandbox. The pull or build itself continues, so a later call finds more of it done. None
                waits for up to half an hour.
            on_progress: Called with progress reports while the call takes long. None shows them as a line on
                standard error if that is a terminal and ``ATOLL_PROGRESS`` is not ``off``. False shows nothing.
            idempotency_key: A text that names this very request, for a caller that repeats it after an error.
                While the sandbox of an earlier call with the key lives, that sandbox is returned, in whatever
                state it is. Keys are each team's own.
            services: Programs that it keeps running, see ``services.add``. With ``from_snapshot`` they come to
                the snapshot's, and take the place of those with the same name.

        Raises:
            InvalidSpecError: An argument is invalid, or another request had the ``idempotency_key``.
            DeadlineError: It was not ready ``within_s`` seconds after the call.
            UnsupportedError: This host cannot enforce one of the limits.
            NameTakenError: Another sandbox has that name.
            ImageNotFoundError: There is no such image.
            ImagePullError: The registry does not deliver the image, or the image is invalid.
            SnapshotNotFoundError: There is no such snapshot.
            VolumeNotFoundError: There is no such volume.
            TemplateNotFoundError: There is no such template, or the template has no such tag.
            ImageBuildError: The image could not be built.
            EngineError: The engine could not start the sandbox.
            HostError: The host lacks something that atoll needs; `atoll doctor` says what.
            NoSpaceError: The disk under the home is full.
            TeamNotFoundError: There is no such team.
            QuotaError: The team's quota allows no more, or a volume that it could write to is full.
            HostMemoryError: The host has too little memory left.
        """
        spec = SandboxSpec(
            image=image,
            name=name,
            env=copied("env", env),
            metadata=copied("metadata", metadata),
            network=network,
            from_snapshot=snapshot_ref(from_snapshot) if from_snapshot is not None else None,
            limits=Limits() if limits is None else limits,
            template=template,
            best_effort=best_effort,
            on_crash=on_crash,
            start=start,
            trust_host_ca=trust_host_ca,
            lifecycle=lease_of(lifecycle, ttl_s),
            volumes=copied_volumes(volumes),
            team=team,
            attributes=users_attributes(attributes),
            idempotency_key=idempotency_key,
            services=list(services or ()),
            ports=ports,
        )
        link, line = Link(), line_for(on_progress)
        try:
            make = partial(link.make, "/v1/sandboxes", SandboxInfo, spec.checked(), within_s=within_s)
            return make(
                lambda info: line.before(cls(link, info, kill_at_exit=not keep)), on_progress=line.report
            )
        except BaseException:
            line.close()
            raise

    @classmethod
    @no_foreign_arguments
    def connect(
        cls,
        id_or_name: str,
        *,
        wake: bool = True,
        ttl_s: float | None = None,
    ) -> Self:
        """Attach to a sandbox and wake it if it sleeps. If it crashed, do what its ``on_crash`` says.

        Args:
            id_or_name: The sandbox's id or name.
            wake: False leaves the sandbox as it is. Its first use then wakes it.
            ttl_s: Length in seconds of the lease that begins when the sandbox wakes. None means the
                length in its lifecycle. The lease of a running sandbox is extended to this length, never
                shortened. At its end the sandbox is killed, or what its lifecycle's ``on_expiry`` says.

        Raises:
            SandboxNotFoundError: No sandbox has that id or name.
            EngineError: The sandbox could not be woken.
            QuotaError: The team's quota allows no more running sandboxes.
            HostMemoryError: The host has too little memory left.
        """
        Lifecycle(ttl_s=ttl_s).check()
        path = f"/v1/sandboxes/{ref(id_or_name)}"
        with closed_on_error(Link()) as link:
            if wake:
                body, began = ResumeRequest(ttl_s=ttl_s), time.time()
                info = link.call(
                    "POST", f"{path}/wake", SandboxInfo, body, timeout_s=LONG_S, repeatable=True
                )
                tell_recovery_since(info, began)
            else:
                info = link.call("GET", path, SandboxInfo)
        return cls(link, info)

    @classmethod
    def connect_or_create(
        cls,
        image: str | None = None,
        *,
        name: str,
        ttl_s: float | None = None,
        **options: Unpack[SandboxOptions],
    ) -> Self:
        """Attach to the sandbox with this name, or make it if there is none. It stays after ``with``.

        Callers that do this at once with the same name get the same sandbox.

        Args:
            image: What to make it of. A sandbox that exists is returned as it is, whatever its image.
            name: Its name, unique in the home.
            ttl_s: The lease, as for ``connect`` and ``create``.
            **options: Further arguments of ``create``, used only if it is made.

        Raises:
            InvalidSpecError: An argument is invalid, or is none of ``create``.
            NameTakenError: Another client has been making a sandbox of that name for too long.
            EngineError, QuotaError and those of ``create``: The sandbox could not be woken or made.
        """
        check_text("name", name)
        if foreign := options.keys() - SandboxOptions.__annotations__:
            raise foreign_argument(cls.create, min(foreign))
        wait_s = options.get("within_s") or LONG_S
        end, pause_s = time.monotonic() + wait_s, _FIRST_PAUSE_S
        while True:
            with contextlib.suppress(SandboxNotFoundError):
                return cls.connect(name, ttl_s=ttl_s)
            try:
                return cls.create(image, name=name, ttl_s=ttl_s, keep=True, **options)
            except NameTakenError:
                # another client makes it just now: it can be found once it runs
                if time.monotonic() > end:
                    raise
            sleep(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)

    @classmethod
    def of(cls, info: SandboxInfo) -> Self:
        """Return a handle on a sandbox whose ``info`` is known.

        This asks nothing, and the first use wakes it.
        """
        return cls(Link(), info)

    @classmethod
    def get(cls, id_or_name: str) -> SandboxInfo:
        """Return what is known of a sandbox, without waking it.

        Raises:
            SandboxNotFoundError: No sandbox has that id or name.
        """
        with contextlib.closing(Link()) as link:
            return link.call("GET", f"/v1/sandboxes/{ref(id_or_name)}", SandboxInfo)

    @classmethod
    @no_foreign_arguments
    def list(
        cls,
        *,
        state: SandboxState | Sequence[SandboxState] | None = None,
        metadata: Mapping[str, str] | None = None,
        team: str | None = None,
        limit: int | None = None,
    ) -> Iterator[SandboxInfo]:
        """Iterate over the sandboxes of the home, oldest first, page by page, without waking any.

        Args:
            state: Only sandboxes in this state, or in one of these states.
            metadata: Only sandboxes with all of these labels.
            team: Only sandboxes of this team.
            limit: How many to return at most; None means all.
        """
        for info in listed(state, metadata, team, limit):
            yield info
