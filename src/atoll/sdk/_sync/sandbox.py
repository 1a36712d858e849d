# Made by scripts/unasync.py from sdk/_async/sandbox.py: do not edit.
"""The sandbox class of the SDK."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from atoll.errors import InvalidSpecError, SandboxNotFoundError
from atoll.protocol import AskRequest
from atoll.sdk._sync.api import Api, ignored
from atoll.sdk._sync.asks import Answering, Decide
from atoll.sdk._sync.code import Code
from atoll.sdk._sync.egress import Egress
from atoll.sdk._sync.files import Files
from atoll.sdk._sync.git import Git
from atoll.sdk._sync.opening import Opening
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
from atoll.sdk._sync.services import Services
from atoll.sdk._foreign import no_foreign_arguments
from atoll.sdk._forks import diff_request, fork_request, promote_request
from atoll.sdk._holding import Holding
from atoll.sdk._io_sync import shielded
from atoll.types import (
    Ask,
    DelegationSpec,
    ExecResult,
    FilesDiff,
    GuestPath,
    Lifecycle,
    ModelAccess,
    Powers,
    Progress,
    SandboxInfo,
    SnapshotInfo,
)
from atoll.types.internal import ASK_DEADLINE_MOST_S, check_number, check_text, html_table

# Inside the class, `list` means the method below, so annotations there use these names.
_Infos = list[SandboxInfo]
_Sandboxes: TypeAlias = "list[Sandbox]"
_KILL_S = 60.0


class Sandbox(Opening):
    """A computer that keeps its state: it runs programs, stores files, sleeps, wakes, forks and rolls back.

    Get one with ``create``, ``connect`` or ``fork``. Every use of a sleeping sandbox (a program, a file, a
    port) wakes it. As a context, a sandbox from ``create`` or ``fork`` is killed at the end unless ``keep``
    is set. If the process dies first, the sandbox is suspended after a minute and erased an hour later. A
    sandbox from ``connect`` is only disconnected.

    Attributes:
        id: 20 lower case letters and digits, never used again.
        name: The sandbox's name, unique in the home, or None.
        delegation: For whom it acts, what it may do at most, and until when: the same all its life.
        files: The sandbox's files.
        processes: Its programs in the background and on terminals.
        ports: Its ports.
        code: Runs code in contexts that keep their variables.
        git: Git, run in it.
        egress: Its egress policy and decisions.
        services: Programs that it keeps running.

    Every method may raise these errors; the sections below name only the further ones:

    - SandboxNotFoundError: the sandbox was killed.
    - SandboxCrashedError: its processes died. The next use does what ``on_crash`` says.
    - StateError: somebody put it to sleep during the call. Its subclass AsleepError means that it sleeps and
      that only ``resume`` wakes it.
    - EngineError, HostMemoryError and QuotaError: it sleeps and could not be woken.
    - DelegationExpiredError: its delegation has ended, and nothing wakes it any more.
    - DeadlineError: no answer came in time.
    - SupervisorError and VersionMismatchError: the supervisor cannot be started, or has another version.
    """

    def __init__(self, api: Api, info: SandboxInfo, *, kill_at_exit: bool = False) -> None:
        super().__init__(api, info, kill_at_exit=kill_at_exit)
        self.files: Files = Files(self._agent)
        self.code: Code = Code(self._agent)
        self.egress: Egress = Egress(api, self._path)
        self.services: Services = Services(api, self._agent, self._path)
        self._holding: Holding | None = None

    @property
    def git(self) -> Git:
        """Git in this sandbox: clone, status, commit, push and more, with typed results."""
        return Git(self)

    def __enter__(self) -> Sandbox:
        if self._holding is None:
            self._holding = Holding(self._api.place.where, self._path, binds=self._kill_at_exit)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._kill_at_exit:
                with shielded(_KILL_S), contextlib.suppress(SandboxNotFoundError):
                    self.kill()
        finally:
            if self._holding is not None:
                self._holding.end()
                self._holding = None
            self.close()

    def on_ask(self, decide: Decide) -> Answering:
        """Answer what this sandbox asks by a function, while the context lasts: ``with sandbox.on_ask(decide):``.

        Without anybody who could answer, a request that a rule asks about is refused at once.

        Args:
            decide: Gets each ``Ask``, several at a time, in threads of its own. True approves it once, False denies
                it, and None leaves it to others. An ``Answer`` says more.
        """
        return Answering(self.id, decide)

    def ask(self, title: str, body: str = "", deadline_s: float = 300.0) -> Ask:
        """Ask whoever answers for this sandbox about something that is no request, and wait for the answer.

        The answer is ``outcome``: ``allowed``, ``denied`` with a ``reason``, also if nobody is there who could answer,
        or ``expired``.

        Args:
            title: One line of at most 200 characters.
            body: All that matters for the answer, of at most 256 KiB.
            deadline_s: How long to wait, 1 to 3600 seconds.

        Raises:
            InvalidSpecError: An argument is invalid, or 64 questions wait already.
        """
        for name, text in (("title", title), ("body", body)):
            check_text(name, text)
        hint = f"give 1 to {ASK_DEADLINE_MOST_S} seconds"
        check_number("deadline_s", deadline_s, least=1, most=ASK_DEADLINE_MOST_S, hint=hint)
        wanted = AskRequest(title=title, body=body, deadline_s=deadline_s)
        return self._api.long_call("POST", f"{self._path}/asks", Ask, wanted, on_progress=ignored)

    def powers(self) -> Powers:
        """Return what this sandbox could do at worst, by its settings of now. This does not wake it.

        It is the same here and over a server. Whoever may change the settings may change the powers.
        """
        return self._api.call("GET", f"{self._path}/powers", Powers)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}{f' {self.name!r}' if self.name else ''}>"

    def _repr_html_(self) -> str:
        return html_table([], [("", type(self).__name__), ("id", self.id), ("name", self.name or "")])

    def close(self) -> None:
        """Close the connections to the sandbox.

        The sandbox keeps running, and the next use of this object connects again.
        """
        self._agent.close()
        self._api.close()

    @no_foreign_arguments
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
        check: bool = False,
    ) -> ExecResult:
        """Run a shell line and wait until the shell exits, even if a child continues in the background.

        The shell is killed after 60 seconds unless ``timeout_s`` says otherwise. None means no limit. The
        arguments, effects and errors are those of ``exec``.
        """
        if not isinstance(line, str):
            raise InvalidSpecError("run takes a shell line", hint="give exec a list of arguments")
        collector = Collector(max_output_bytes, on_stdout, on_stderr)
        result = self._execute(line, cwd, env, user, stdin, timeout_s, collector)
        return result.check() if check else result

    @no_foreign_arguments
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
        check: bool = False,
    ) -> ExecResult:
        """Run a program and wait for it. ``argv`` goes to execve unchanged, without a shell.

        The program is killed after 60 seconds unless ``timeout_s`` says otherwise. None means no limit. An
        exit code other than 0 is a result, not an error, unless ``check`` is set. If the call is cancelled or
        interrupted, or a callback fails, the program and its process group are killed. The sandbox itself
        keeps running.

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
            check: Raise ExecFailedError unless the exit code is 0.

        Raises:
            ExecFailedError: ``check`` is set and the exit code is not 0. ``result`` contains its output.
            ExecTimeoutError: ``timeout_s`` passed and the program was killed. ``result`` contains its output
                until then.
            FileMissingError: ``argv[0]`` or ``cwd`` is not in the sandbox.
            FileDeniedError: The user may not execute the program.
            InvalidSpecError: ``user`` is unknown, or ``argv`` is empty.
        """
        if isinstance(argv, str):
            raise InvalidSpecError("exec takes a list of arguments", hint="give run a shell line")
        collector = Collector(max_output_bytes, on_stdout, on_stderr)
        result = self._execute(argv, cwd, env, user, stdin, timeout_s, collector)
        return result.check() if check else result

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

    @no_foreign_arguments
    def fork(
        self,
        count: int | None = None,
        *,
        names: Sequence[str] | None = None,
        lifecycle: Lifecycle | None = None,
        delegation: DelegationSpec | None = None,
        models: ModelAccess | None = None,
    ) -> _Sandboxes:
        """Make ``count`` running copies of its memory and disk, all or none. The original keeps running.

        Each copy has its own id, host name and random state. Its connections to the outside are reset. A call
        that is cancelled or interrupted, or whose process is killed before it returns, leaves no copy.

        Args:
            count: From 1 to 100. None means the number of names, or 1.
            names: A name for each copy, in order. None leaves the copies unnamed.
            lifecycle: How long the copies may run. None means the original's lifecycle. In either case their
                leases begin now.
            delegation: What each copy acts under: no more than this sandbox does. None means as much.
            models: The models of each copy, with a budget of its own. None means those of this sandbox, of the same
                budget.

        Raises:
            InvalidSpecError: ``count`` is out of range, or ``names`` does not hold one valid name for each
                copy.
            NameTakenError: Another sandbox has one of the names. No copy is made.
            UnsupportedError: The sandbox's engine cannot fork.
            NoSpaceError: The disk under the home is full. No copy is made.
            QuotaError: The team's quota allows no more. No copy is made.
            HostMemoryError: The host has too little memory left. No copy is made.
            DelegationError: The sandbox's delegation allows no copies or not so much, or has ended. No copy is
                made.
        """
        body = fork_request(count, names, lifecycle, delegation, models)

        def handles(infos: _Infos) -> _Sandboxes:
            return [type(self)(Api(self._api.place), info, kill_at_exit=True) for info in infos]

        return self._api.make(f"{self._path}/fork", _Infos, body, handles)

    def promote(
        self,
        fork: str | SandboxInfo | Sandbox,
        name: str | None = None,
        *,
        on_progress: Callable[[Progress], Any] | None = None,
    ) -> SnapshotInfo:
        """Continue from a fork's memory and disk, under this sandbox's id and name. The fork ends.

        The id, name, addresses, lease, labels, policy, limits and volumes of this sandbox stay. The fork's
        programs continue in it, and a snapshot keeps its old state. Both stand still meanwhile, so no work of
        either is lost. Open connections to both close. A sandbox that was paused or suspended runs
        afterwards. If this fails, both are as they were.

        Args:
            fork: The winner: a fork, a fork of one, or another sandbox of the same team, image and volumes.
            name: Of the snapshot, unique in the home; None leaves it unnamed.
            on_progress: Called every half second when it takes over a second.

        Returns:
            The snapshot of the old state. ``rollback`` to it undoes this, except that the fork stays gone.

        Raises:
            InvalidSpecError: The winner is of another team or image, or mounts other volumes.
            StateError: One of them has crashed, or only its disk is kept.
            UnpluggedError: One of them is unplugged.
            NameTakenError: Another snapshot has that name.
            UnsupportedError: The sandbox's engine cannot take snapshots.
            NoSpaceError: The disk under the home is full.
            QuotaError: The team's disk quota is used up, or it may run no sandbox with these limits.
            SandboxCrashedError: The winner cannot run with this sandbox's limits.
        """
        body = promote_request(fork, name)
        kept = self._api.long_call(
            "POST", f"{self._path}/promote", SnapshotInfo, body, on_progress=on_progress
        )
        self._agent.close()
        return kept

    def diff(
        self,
        base: str | SandboxInfo | SnapshotInfo | Sandbox,
        *,
        paths: Sequence[str] = (),
        on_progress: Callable[[Progress], Any] | None = None,
    ) -> FilesDiff:
        """Return how this sandbox's files differ from those of a fork, its original or a snapshot.

        ``added`` is here and not there. The host compares the layers of both disks, so this takes as long as
        reading the changes of either, however big the disks are. It wakes no sandbox. It leaves out volumes
        and files in memory, such as those in ``/tmp``. At most 10,000 changes are returned.

        Args:
            base: A sandbox or snapshot of the same team and image.
            paths: Absolute paths of files and directories to look at. Empty is everything.
            on_progress: Called every half second when it takes over a second.

        Raises:
            SnapshotNotFoundError: There is no such sandbox or snapshot.
            InvalidSpecError: It is of another team or image, or a path is not absolute.
            UnsupportedError: The engine keeps the disk.
        """
        body = diff_request(base, paths)
        return self._api.long_call(
            "POST", f"{self._path}/diff", FilesDiff, body, on_progress=on_progress
        )

    def kill(self) -> None:
        """End the sandbox now and for good. Its memory and disk are erased soon after; its snapshots stay.

        Raises:
            SandboxNotFoundError: The sandbox was killed before.
        """
        try:
            self._agent.tell_rest()
            self._api.delete(self._path)
        finally:
            self.close()
