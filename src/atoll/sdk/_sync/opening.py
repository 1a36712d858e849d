# Made by scripts/unasync.py from sdk/_async/opening.py: do not edit.
"""How a program gets a sandbox: a new one, one that exists, or what is known of all of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from atoll.errors import NameTakenError, SandboxNotFoundError
from atoll.protocol import ResumeRequest
from atoll.sdk._sync.api import LONG_S, Api, closed_on_error, ref
from atoll.sdk._sync.listing import listed
from atoll.sdk._sync.reaching import Reaching
from atoll.sdk._foreign import Kind, foreign_argument, foreign_attribute, made_directly, no_foreign_arguments
from atoll.sdk._io_sync import sleep
from atoll.sdk._leases import lease_of
from atoll.sdk._notices import tell_recovery_since
from atoll.sdk._progress import line_for
from atoll.sdk._sources import source_fields
from atoll.types import (
    Boot,
    EgressPolicy,
    Hosting,
    Lifecycle,
    Limits,
    SandboxInfo,
    SandboxOptions,
    SandboxSpec,
    SandboxState,
    Source,
    VolumeMount,
    Wait,
)
from atoll.types.internal import check_kind, check_text, copied, copied_volumes, users_attributes

_Value = TypeVar("_Value")
_FIRST_PAUSE_S = 0.05
_LAST_PAUSE_S = 1.0


class Opening(Reaching, metaclass=Kind):
    """Gives the sandbox class its class methods: the ways to a handle, and questions about all sandboxes."""

    if not TYPE_CHECKING:  # a type checker must go on seeing which names there are

        def __new__(cls, *args: Any, **_: Any) -> Self:
            if not args or not isinstance(args[0], Api):
                raise made_directly(cls)
            return super().__new__(cls)

        def __getattr__(self, name: str) -> Any:
            raise foreign_attribute(self, name)

    def __init__(self, api: Api, info: SandboxInfo, *, kill_at_exit: bool = False) -> None:
        super().__init__(api, info)
        self._kill_at_exit = kill_at_exit

    @classmethod
    @no_foreign_arguments
    def create(
        cls,
        source: Source | None = None,
        *,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        network: EgressPolicy | None = None,
        limits: Limits | None = None,
        lifecycle: Lifecycle | None = None,
        volumes: Mapping[str, str | VolumeMount] | None = None,
        boot: Boot | None = None,
        hosting: Hosting | None = None,
        keep: bool = False,
        wait: Wait | None = None,
    ) -> Self:
        """Make a sandbox and return it running. The first sandbox of an image also builds or pulls the image.

        A call that is cancelled or interrupted, or whose process is killed before it returns, leaves no
        sandbox. A pull or build of the image continues.

        Args:
            source: An image like ``python:3.12``, ``Snapshot("ID OR NAME")``, whose memory and disk it starts
                with, ``Template("NAME:TAG")``, or the info of one of the two. None means the image ``base``.
            name: Unique in the home while the sandbox lives: lower case letters, digits and ``-``.
            env: Variables for every program in it. Snapshots contain them, so do not put secrets here.
            metadata: Your own labels, by which ``list`` can find the sandbox.
            network: What it may reach: a ``Policy``, or ``"none"``, ``"packages"``, ``"web-read-only"`` or
                ``"internet"``. None means the policy stored in the snapshot, or ``"internet"`` without one.
            limits: How much the sandbox may use. With a snapshot, a limit that is None is the snapshot's.
            lifecycle: How long the sandbox may run, and what happens then, like ``Lifecycle(ttl_s=300)``. None
                means that it stays until it is killed, and sleeps after 15 idle minutes unless a program is
                in ``with`` of it.
            volumes: Maps each absolute path inside to the volume that appears there: its name, or
                ``VolumeMount("NAME", read_only=True)``.
            boot: What runs in it from the start, and what a crash leads to.
            hosting: Its team, its attributes, for whom it acts, and what ``atoll serve`` lets reach its ports.
            keep: Leave the sandbox alive at the end of ``with``, and if this process dies in it.
            wait: How long the call may take, and who is told how far it is.

        Raises:
            InvalidSpecError: An argument is invalid, or another request had its ``idempotency_key``.
            DeadlineError: It was not ready ``wait.within_s`` seconds after the call.
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
            DelegationError: It asks for more than its delegation allows, or that has ended.
        """
        boot, hosting = _given("boot", boot, Boot), _given("hosting", hosting, Hosting)
        wait = _given("wait", wait, Wait)
        spec = SandboxSpec(
            **source_fields(source),
            name=name,
            env=copied("env", env),
            metadata=copied("metadata", metadata),
            network=network,
            limits=_given("limits", limits, Limits),
            lifecycle=_given("lifecycle", lifecycle, Lifecycle),
            volumes=copied_volumes(volumes),
            start=boot.start,
            trust_host_ca=boot.trust_host_ca,
            services=list(boot.services),
            on_crash=boot.on_crash,
            best_effort=boot.best_effort,
            team=hosting.team,
            attributes=users_attributes(hosting.attributes),
            ports=hosting.ports,
            idempotency_key=hosting.idempotency_key,
            delegation=hosting.delegation,
            models=hosting.models,
        )
        api, line = Api(), line_for(wait.on_progress)
        try:
            make = partial(api.make, "/v1/sandboxes", SandboxInfo, spec.checked(), within_s=wait.within_s)
            return make(
                lambda info: line.before(cls(api, info, kill_at_exit=not keep)), on_progress=line.report
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
        with closed_on_error(Api()) as api:
            if wake:
                body, began = ResumeRequest(ttl_s=ttl_s), time.time()
                info = api.call(
                    "POST", f"{path}/wake", SandboxInfo, body, timeout_s=LONG_S, repeatable=True
                )
                tell_recovery_since(info, began)
            else:
                info = api.call("GET", path, SandboxInfo)
        return cls(api, info)

    @classmethod
    def connect_or_create(
        cls,
        source: Source | None = None,
        *,
        name: str,
        ttl_s: float | None = None,
        **options: Unpack[SandboxOptions],
    ) -> Self:
        """Attach to the sandbox with this name, or make it if there is none. It stays after ``with``.

        Callers that do this at once with the same name get the same sandbox.

        Args:
            source: What to make it of. A sandbox that exists is returned as it is, whatever it was made of.
            name: Its name, unique in the home.
            ttl_s: The lease: as for ``connect``, or as in the ``lifecycle`` of a new one.
            **options: Further arguments of ``create``, used only if it is made.

        Raises:
            InvalidSpecError: An argument is invalid, or is none of ``create``.
            NameTakenError: Another client has been making a sandbox of that name for too long.
            EngineError, QuotaError and those of ``create``: The sandbox could not be woken or made.
        """
        check_text("name", name)
        if foreign := options.keys() - SandboxOptions.__annotations__:
            raise foreign_argument(cls.create, min(foreign))
        wait = _given("wait", options.get("wait"), Wait)
        end, pause_s = time.monotonic() + (wait.within_s or LONG_S), _FIRST_PAUSE_S
        while True:
            with contextlib.suppress(SandboxNotFoundError):
                return cls.connect(name, ttl_s=ttl_s)
            try:
                wanted: SandboxOptions = {**options, "lifecycle": lease_of(options.get("lifecycle"), ttl_s)}
                return cls.create(source, name=name, keep=True, **wanted)
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
        return cls(Api(), info)

    @classmethod
    def get(cls, id_or_name: str) -> SandboxInfo:
        """Return what is known of a sandbox, without waking it.

        Raises:
            SandboxNotFoundError: No sandbox has that id or name.
        """
        with contextlib.closing(Api()) as api:
            return api.call("GET", f"/v1/sandboxes/{ref(id_or_name)}", SandboxInfo)

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


def _given(name: str, value: _Value | None, kind: type[_Value]) -> _Value:
    """Return a value that a caller gave; for None the one that says nothing.

    Raises:
        InvalidSpecError: It is of another kind.
    """
    if value is None:
        return kind()
    check_kind(name, value, kind)
    return value
