"""A sandbox, as its users have it."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from atoll.errors import InvalidSpecError, SandboxNotFoundError
from atoll.protocol import ResumeRequest
from atoll.sdk._async.files import AsyncFiles
from atoll.sdk._async.link import LONG_S, AsyncLink, closed_on_error, ref
from atoll.sdk._async.listing import listed
from atoll.sdk._async.ports import AsyncForward
from atoll.sdk._async.programs import (
    MAX_OUTPUT_BYTES,
    Collector,
    Command,
    OutputCallback,
    Stdin,
    exec_tag,
    execute,
    program_of,
)
from atoll.sdk._async.sessions import AsyncSessions
from atoll.sdk._async.snapshots import snapshot_ref
from atoll.sdk._forks import fork_request
from atoll.sdk._io_async import shielded, user_socket
from atoll.sdk._notices import tell_recovery_since
from atoll.types import (
    EgressPolicy,
    ExecResult,
    GuestPath,
    Lifecycle,
    Limits,
    OnCrash,
    Progress,
    SandboxInfo,
    SandboxSpec,
    SandboxState,
    SnapshotInfo,
    check_number,
    copied,
    users_attributes,
)

# `list` is a method below, so that annotations there cannot name the type
_Infos = list[SandboxInfo]
_Sandboxes: TypeAlias = "list[AsyncSandbox]"
_KILL_S = 60.0


class AsyncSandbox(AsyncSessions):
    """A whole computer that remembers: it runs programs, keeps files, sleeps, wakes, forks and rolls back.

    Get one with ``create``, ``connect`` or ``fork``. Every use of a sleeping one (a program, a file, a port) wakes it.
    Used as a context, one from ``create`` or ``fork`` is killed at the end unless ``keep``; one from ``connect`` is
    only disconnected.

    Attributes:
        id: 20 lower case letters and digits, never used again.
        name: Its name, unique in the home, or None.
        files: Its files.

    Every method may raise what every use of a sandbox may: SandboxNotFoundError (it was killed),
    SandboxCrashedError (its processes died; the next use does what ``on_crash`` says), StateError (somebody put it to
    sleep in the middle of the call; as AsleepError: it sleeps, and only ``resume`` wakes it), EngineError and
    QuotaError (it sleeps, and could not be woken), DeadlineError (no answer in time), SupervisorError and
    VersionMismatchError (the supervisor cannot be started, or is of another version). The sections below name what
    comes on top.
    """

    def __init__(self, link: AsyncLink, info: SandboxInfo, *, kill_at_exit: bool = False) -> None:
        super().__init__(link, info)
        self.files = AsyncFiles(self._agent)
        self._kill_at_exit = kill_at_exit

    @classmethod
    async def create(
        cls,
        *,
        image: str | None = None,
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
        lifecycle: Lifecycle | None = None,
        volumes: Mapping[str, str] | None = None,
        team: str | None = None,
        attributes: Mapping[str, str] | None = None,
        keep: bool = False,
        on_progress: Callable[[Progress], Any] | None = None,
    ) -> AsyncSandbox:
        """Make a sandbox and return it running. The first one of an image builds or pulls the image.

        A call that is cancelled or interrupted, or whose process is killed before it returns, leaves no
        sandbox; a pull or build of the image goes on.

        Args:
            image: ``base``, or one like ``python:3.12``; None is ``base``, or the snapshot's with ``from_snapshot``.
            name: Unique in the home while the sandbox lives: lower case letters, digits and ``-``.
            env: Variables for every program in it. They are in its snapshots: no place for secrets.
            metadata: Labels of your own, to find it by in ``list``.
            network: ``"internet"`` lets TCP and DNS out to public addresses, ``"none"`` nothing. Without it that of the
                snapshot, which is its sandbox's when it was made, and else ``"internet"``.
            from_snapshot: Start from this snapshot, memory and disk: its id, name or info.
            template: Start from this template instead: ``NAME`` or ``NAME:TAG``, see ``Templates``.
            limits: How much it may use; with ``from_snapshot``, what is None in it is the snapshot's.
            best_effort: Make it even where this host cannot hold one of the limits.
            on_crash: What its next use does after a crash: ``"reboot"`` starts it from its disk, ``"rollback"`` brings
                its newest snapshot back, ``"stop"`` refuses until ``resume`` or ``rollback``. None is ``"reboot"``,
                or the snapshot's.
            start: Run the image's own program: an ordinary process with the tag ``image``, also after a crash.
                None is False, or the snapshot's.
            trust_host_ca: Trust inside what CA certificates the host trusts beyond the image's own. None is True, or
                the snapshot's. This and ``start`` are fixed in a snapshot or template: something else is refused.
            lifecycle: How long it may run, and what happens then; None is as long as it likes.
            volumes: Names of volumes by the absolute path where each appears inside.
            team: Whom it belongs to; None is nobody.
            attributes: Remembered for the program that makes it, and told by ``info`` and ``list``. Names that begin
                with ``atoll.`` are atoll's own and refused; those that begin with ``own_`` are not its forks' too.
            keep: Leave it alive at the end of ``async with``.
            on_progress: Called with what goes on while it takes long.

        Raises:
            InvalidSpecError: An argument is not possible.
            UnsupportedError: This host cannot hold one of the limits.
            NameTakenError: Another sandbox has that name.
            ImageNotFoundError: There is no such image.
            ImagePullError: Its registry does not give the image, or it is not what it must be.
            SnapshotNotFoundError: There is no such snapshot.
            VolumeNotFoundError: There is no such volume.
            TemplateNotFoundError: There is no such template, or it has no such tag.
            ImageBuildError: The image could not be built.
            EngineError: The engine could not start it.
            HostError: The host lacks something; `atoll doctor` says what.
            NoSpaceError: The disk under the home is full.
            TeamNotFoundError: There is no such team.
            QuotaError: The team may have no more.
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
            lifecycle=Lifecycle() if lifecycle is None else lifecycle,
            volumes=copied("volumes", volumes),
            team=team,
            attributes=users_attributes(attributes),
        )
        spec.limits.check()
        spec.lifecycle.check()
        link = AsyncLink()

        def handle(info: SandboxInfo) -> AsyncSandbox:
            return cls(link, info, kill_at_exit=not keep)

        return await link.make("/v1/sandboxes", SandboxInfo, spec, handle, on_progress=on_progress)

    @classmethod
    async def connect(
        cls, id_or_name: str, *, wake: bool = True, timeout_s: float | None = None
    ) -> AsyncSandbox:
        """Attach to a sandbox and wake it if it sleeps; of a crashed one ``on_crash`` says what happens.

        Args:
            id_or_name: Which.
            wake: False leaves it as it is until its first use, which wakes it.
            timeout_s: Length of the lease that begins with the waking; None is what its lifecycle says. One that runs
                already has its lease extended to that, never shortened.

        Raises:
            SandboxNotFoundError: There is none with that id or name.
            EngineError: It could not be woken.
            QuotaError: Its team may have no more that run.
        """
        Lifecycle(timeout_s=timeout_s).check()
        path = f"/v1/sandboxes/{ref(id_or_name)}"
        with closed_on_error(AsyncLink()) as link:
            if wake:
                body, began = ResumeRequest(timeout_s=timeout_s), time.time()
                info = await link.call(
                    "POST", f"{path}/wake", SandboxInfo, body, timeout_s=LONG_S, repeatable=True
                )
                tell_recovery_since(info, began)
            else:
                info = await link.call("GET", path, SandboxInfo)
        return cls(link, info)

    @classmethod
    def of(cls, info: SandboxInfo) -> AsyncSandbox:
        """A handle on a sandbox whose ``info`` is known. Nothing is asked of it, and its first use wakes it."""
        return cls(AsyncLink(), info)

    @classmethod
    async def get(cls, id_or_name: str) -> SandboxInfo:
        """What is known of a sandbox. It is not woken.

        Raises:
            SandboxNotFoundError: There is none with that id or name.
        """
        with contextlib.closing(AsyncLink()) as link:
            return await link.call("GET", f"/v1/sandboxes/{ref(id_or_name)}", SandboxInfo)

    @classmethod
    async def list(
        cls,
        *,
        state: SandboxState | Sequence[SandboxState] | None = None,
        metadata: Mapping[str, str] | None = None,
        team: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[SandboxInfo]:
        """Iterate over the sandboxes of the home, oldest first, page by page. None is woken.

        Args:
            state: Only those in this state, or one of these.
            metadata: Only those with all of these labels.
            team: Only those of this team.
            limit: The most to give; None gives all.
        """
        async for info in listed(state, metadata, team, limit):
            yield info

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._kill_at_exit:
            self.close()
            return
        with shielded(_KILL_S):
            try:
                await self.kill()
            except SandboxNotFoundError:
                return

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}{f' {self.name!r}' if self.name else ''}>"

    def close(self) -> None:
        """Close the connections to it. The sandbox goes on, and this object connects anew when it is used."""
        self._agent.close()
        self._link.close()

    async def run(
        self,
        line: str,
        *,
        cwd: GuestPath | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: Stdin | None = None,
        timeout_s: float | None = 60.0,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run a shell line and wait until the shell exits, even if a child of it goes on in the background.

        It is killed after 60 seconds unless ``timeout_s`` says otherwise; None is no limit. The arguments, effects and
        errors are those of ``exec``.
        """
        if not isinstance(line, str):
            raise InvalidSpecError("run takes a shell line", hint="give exec a list of arguments")
        return await self._execute(
            line, cwd, env, user, stdin, timeout_s, Collector(max_output_bytes, on_stdout, on_stderr)
        )

    async def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: GuestPath | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: Stdin | None = None,
        timeout_s: float | None = 60.0,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run a program and wait for it. ``argv`` reaches execve as it is: no shell.

        It is killed after 60 seconds unless ``timeout_s`` says otherwise; None is no limit.
        Another exit code than 0 is a result, not an error. A cancelled or interrupted call, and one whose callback
        fails, kills the program and its process group, and leaves the sandbox alone.

        Args:
            argv: The program and its arguments.
            cwd: Directory in the sandbox; None is the user's own (its home on ``base``).
            env: Variables on top of the sandbox's.
            user: Name of a user in the sandbox; None is the default user.
            stdin: Text, bytes, a file opened for reading, or an iterable of pieces; None is /dev/null.
            timeout_s: Seconds until the program and its process group are killed, 60 unless given; None waits for
                ever.
            on_stdout: Called with each piece of its output as it comes, as text.
            on_stderr: The same for standard error.
            max_output_bytes: Kept per stream, the last ones; the result's ``truncated`` says if there were more.

        Raises:
            ExecTimeoutError: ``timeout_s`` passed, and the program was killed; ``result`` has what it wrote until then.
            FileMissingError: ``argv[0]`` or ``cwd`` is not in the sandbox.
            FileDeniedError: The user may not execute it.
            InvalidSpecError: ``user`` is unknown, or ``argv`` empty.
        """
        if isinstance(argv, str):
            raise InvalidSpecError("exec takes a list of arguments", hint="give run a shell line")
        return await self._execute(
            argv, cwd, env, user, stdin, timeout_s, Collector(max_output_bytes, on_stdout, on_stderr)
        )

    async def _execute(
        self,
        command: Command,
        cwd: GuestPath | None,
        env: Mapping[str, str] | None,
        user: str | None,
        stdin: Stdin | None,
        timeout_s: float | None,
        collector: Collector,
    ) -> ExecResult:
        program = program_of(
            command, cwd=cwd, env=env, user=user, timeout_s=timeout_s, stdin=stdin is not None, tag=exec_tag()
        )
        return await execute(self._agent, program, collector, stdin=stdin, timeout_s=timeout_s)

    async def dial(self, port: int) -> socket.socket:
        """Connect to a TCP port inside, waking the sandbox. The caller closes the socket.

        Raises:
            InvalidSpecError: ``port`` is not between 1 and 65535.
            NotFoundError: Nothing listens there, on any address inside.
            SandboxNotFoundError: The sandbox is gone.
            AsleepError: It sleeps, and is not woken by use.
            DeadlineError: It did not answer in time.
        """
        check_number("port", port, whole=True, hint="give 1 to 65535")
        return user_socket(await self._link.dial(self.id, port))

    def forward(self, port: int, local_port: int = 0) -> AsyncForward:
        """A listener on 127.0.0.1 for a port inside, as a context whose ``port`` is the local one.

        Args:
            port: The port in the sandbox.
            local_port: The port on this host; 0 picks a free one.

        Raises:
            InvalidSpecError: One of them is no port.
        """
        return AsyncForward(self._link, self.id, port, local_port)

    async def fork(
        self,
        count: int | None = None,
        *,
        names: Sequence[str] | None = None,
        lifecycle: Lifecycle | None = None,
    ) -> _Sandboxes:
        """Make ``count`` running copies of its memory and disk, all or none. It goes on as it was.

        Each copy has an id, host name and random state of its own; its connections to the outside are reset.
        A call that is cancelled or interrupted, or whose process is killed before it returns, leaves no copy.

        Args:
            count: From 1 to 100; None is as many as there are names, or 1.
            names: A name for each copy, in their order; None gives them none.
            lifecycle: How long the copies may run; None is the original's. Their leases begin now either way.

        Raises:
            InvalidSpecError: ``count`` is out of range, or ``names`` are not one good name for each copy.
            NameTakenError: Another sandbox has one of the names; there is no copy.
            UnsupportedError: Its engine cannot.
            NoSpaceError: The disk under the home is full; there is no copy.
            QuotaError: Its team may have no more; there is no copy.
        """
        body = fork_request(count, names, lifecycle)

        def handles(infos: _Infos) -> _Sandboxes:
            return [type(self)(AsyncLink(self._link.home), info, kill_at_exit=True) for info in infos]

        return await self._link.make(f"{self._path}/fork", _Infos, body, handles)

    async def kill(self) -> None:
        """End it now and erase its memory and disk; its snapshots stay.

        Raises:
            SandboxNotFoundError: It was killed before.
        """
        try:
            await self._link.delete(self._path)
        finally:
            self.close()
