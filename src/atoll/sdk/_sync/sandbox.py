# Made by scripts/unasync.py from sdk/_async/sandbox.py: do not edit.
"""The sandbox class of the SDK."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from atoll.errors import InvalidSpecError, SandboxNotFoundError
from atoll.protocol import ResumeRequest
from atoll.sdk._sync.egress import Egress
from atoll.sdk._sync.files import Files
from atoll.sdk._sync.link import LONG_S, Link, closed_on_error, ref
from atoll.sdk._sync.listing import listed
from atoll.sdk._sync.ports import Forward
from atoll.sdk._sync.programs import (
    MAX_OUTPUT_BYTES,
    Collector,
    Command,
    OutputCallback,
    Stdin,
    exec_tag,
    execute,
    program_of,
)
from atoll.sdk._sync.sessions import Sessions
from atoll.sdk._sync.snapshots import snapshot_ref
from atoll.sdk._forks import fork_request
from atoll.sdk._io_sync import shielded, user_socket
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

# Inside the class, `list` means the method below, so annotations there use these names.
_Infos = list[SandboxInfo]
_Sandboxes: TypeAlias = "list[Sandbox]"
_KILL_S = 60.0


class Sandbox(Sessions):
    """A computer that keeps its state: it runs programs, stores files, sleeps, wakes, forks and rolls back.

    Get one with ``create``, ``connect`` or ``fork``. Every use of a sleeping sandbox (a program, a file, a
    port) wakes it. As a context, a sandbox from ``create`` or ``fork`` is killed at the end unless ``keep``
    is set. A sandbox from ``connect`` is only disconnected.

    Attributes:
        id: 20 lower case letters and digits, never used again.
        name: The sandbox's name, unique in the home, or None.
        files: The sandbox's files.
        egress: What it may reach, and what was decided about that.

    Every method may raise these errors; the sections below name only the further ones:

    - SandboxNotFoundError: the sandbox was killed.
    - SandboxCrashedError: its processes died. The next use does what ``on_crash`` says.
    - StateError: somebody put it to sleep during the call. Its subclass AsleepError means that it sleeps and
      that only ``resume`` wakes it.
    - EngineError and QuotaError: it sleeps and could not be woken.
    - DeadlineError: no answer came in time.
    - SupervisorError and VersionMismatchError: the supervisor cannot be started, or has another version.
    """

    def __init__(self, link: Link, info: SandboxInfo, *, kill_at_exit: bool = False) -> None:
        super().__init__(link, info)
        self.files: Files = Files(self._agent)
        self.egress: Egress = Egress(link, self._path)
        self._kill_at_exit = kill_at_exit

    @classmethod
    def create(
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
    ) -> Sandbox:
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
            lifecycle: How long the sandbox may run, and what happens then. None means without limit.
            volumes: Maps each absolute path inside to the name of the volume that appears there.
            team: The team that owns the sandbox; None means no team.
            attributes: Values stored for the calling program and returned by ``info`` and ``list``. Names
                that begin with ``atoll.`` are reserved and refused. Forks do not inherit names that begin
                with ``own_``.
            keep: Leave the sandbox alive at the end of ``with``.
            on_progress: Called with progress reports while the call takes long.

        Raises:
            InvalidSpecError: An argument is invalid.
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
            QuotaError: The team's quota allows no more.
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
        link = Link()

        def handle(info: SandboxInfo) -> Sandbox:
            return cls(link, info, kill_at_exit=not keep)

        return link.make("/v1/sandboxes", SandboxInfo, spec, handle, on_progress=on_progress)

    @classmethod
    def connect(
        cls, id_or_name: str, *, wake: bool = True, timeout_s: float | None = None
    ) -> Sandbox:
        """Attach to a sandbox and wake it if it sleeps. If it crashed, do what its ``on_crash`` says.

        Args:
            id_or_name: The sandbox's id or name.
            wake: False leaves the sandbox as it is. Its first use then wakes it.
            timeout_s: Length in seconds of the lease that begins when the sandbox wakes. None means the
                length in its lifecycle. The lease of a running sandbox is extended to this length, never
                shortened.

        Raises:
            SandboxNotFoundError: No sandbox has that id or name.
            EngineError: The sandbox could not be woken.
            QuotaError: The team's quota allows no more running sandboxes.
        """
        Lifecycle(timeout_s=timeout_s).check()
        path = f"/v1/sandboxes/{ref(id_or_name)}"
        with closed_on_error(Link()) as link:
            if wake:
                body, began = ResumeRequest(timeout_s=timeout_s), time.time()
                info = link.call(
                    "POST", f"{path}/wake", SandboxInfo, body, timeout_s=LONG_S, repeatable=True
                )
                tell_recovery_since(info, began)
            else:
                info = link.call("GET", path, SandboxInfo)
        return cls(link, info)

    @classmethod
    def of(cls, info: SandboxInfo) -> Sandbox:
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

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._kill_at_exit:
            self.close()
            return
        with shielded(_KILL_S):
            try:
                self.kill()
            except SandboxNotFoundError:
                return

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}{f' {self.name!r}' if self.name else ''}>"

    def close(self) -> None:
        """Close the connections to the sandbox.

        The sandbox goes on, and the next use of this object connects again.
        """
        self._agent.close()
        self._link.close()

    def run(
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
        """Run a shell line and wait until the shell exits, even if a child goes on in the background.

        The shell is killed after 60 seconds unless ``timeout_s`` says otherwise. None means no limit. The
        arguments, effects and errors are those of ``exec``.
        """
        if not isinstance(line, str):
            raise InvalidSpecError("run takes a shell line", hint="give exec a list of arguments")
        return self._execute(
            line, cwd, env, user, stdin, timeout_s, Collector(max_output_bytes, on_stdout, on_stderr)
        )

    def exec(
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
        """Run a program and wait for it. ``argv`` goes to execve unchanged, without a shell.

        The program is killed after 60 seconds unless ``timeout_s`` says otherwise. None means no limit. An
        exit code other than 0 is a result, not an error. If the call is cancelled or interrupted, or a
        callback fails, the program and its process group are killed. The sandbox itself goes on.

        Args:
            argv: The program and its arguments.
            cwd: Directory in the sandbox; None means the user's own directory (its home on ``base``).
            env: Variables on top of the sandbox's.
            user: Name of a user in the sandbox; None means the default user.
            stdin: Text, bytes, a file opened for reading, or an iterable of pieces; None means /dev/null.
            timeout_s: Seconds until the program and its process group are killed, 60 unless given. None waits
                without limit.
            on_stdout: Called with each piece of output as text, as soon as it arrives.
            on_stderr: The same for standard error.
            max_output_bytes: How many bytes of each stream to keep, the last ones. The result's ``truncated``
                says if there were more.

        Raises:
            ExecTimeoutError: ``timeout_s`` passed and the program was killed. ``result`` contains its output
                until then.
            FileMissingError: ``argv[0]`` or ``cwd`` is not in the sandbox.
            FileDeniedError: The user may not execute the program.
            InvalidSpecError: ``user`` is unknown, or ``argv`` is empty.
        """
        if isinstance(argv, str):
            raise InvalidSpecError("exec takes a list of arguments", hint="give run a shell line")
        return self._execute(
            argv, cwd, env, user, stdin, timeout_s, Collector(max_output_bytes, on_stdout, on_stderr)
        )

    def _execute(
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
        return execute(self._agent, program, collector, stdin=stdin, timeout_s=timeout_s)

    def dial(self, port: int) -> socket.socket:
        """Connect to a TCP port inside and return the socket.

        This wakes the sandbox. The caller closes the socket.

        Raises:
            InvalidSpecError: ``port`` is not between 1 and 65535.
            NotFoundError: Nothing listens on this port, on any address inside.
            SandboxNotFoundError: The sandbox is gone.
            AsleepError: The sandbox sleeps, and a use does not wake it.
            DeadlineError: The sandbox did not answer in time.
        """
        check_number("port", port, whole=True, hint="give 1 to 65535")
        return user_socket(self._link.dial(self.id, port))

    def forward(self, port: int, local_port: int = 0) -> Forward:
        """Forward a port of 127.0.0.1 to a port inside. Returns a context whose ``port`` is the local port.

        Args:
            port: The port in the sandbox.
            local_port: The port on this host; 0 picks a free one.

        Raises:
            InvalidSpecError: One of the two is not a port number.
        """
        return Forward(self._link, self.id, port, local_port)

    def fork(
        self,
        count: int | None = None,
        *,
        names: Sequence[str] | None = None,
        lifecycle: Lifecycle | None = None,
    ) -> _Sandboxes:
        """Make ``count`` running copies of its memory and disk, all or none. The original goes on running.

        Each copy has its own id, host name and random state. Its connections to the outside are reset. A call
        that is cancelled or interrupted, or whose process is killed before it returns, leaves no copy.

        Args:
            count: From 1 to 100. None means the number of names, or 1.
            names: A name for each copy, in order. None leaves the copies unnamed.
            lifecycle: How long the copies may run. None means the original's lifecycle. In either case their
                leases begin now.

        Raises:
            InvalidSpecError: ``count`` is out of range, or ``names`` does not hold one valid name for each
                copy.
            NameTakenError: Another sandbox has one of the names. No copy is made.
            UnsupportedError: The sandbox's engine cannot fork.
            NoSpaceError: The disk under the home is full. No copy is made.
            QuotaError: The team's quota allows no more. No copy is made.
        """
        body = fork_request(count, names, lifecycle)

        def handles(infos: _Infos) -> _Sandboxes:
            return [type(self)(Link(self._link.home), info, kill_at_exit=True) for info in infos]

        return self._link.make(f"{self._path}/fork", _Infos, body, handles)

    def kill(self) -> None:
        """End the sandbox now and erase its memory and disk. Its snapshots stay.

        Raises:
            SandboxNotFoundError: The sandbox was killed before.
        """
        try:
            self._link.delete(self._path)
        finally:
            self.close()
