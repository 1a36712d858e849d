# Made by scripts/unasync.py from sdk/_async/building.py: do not edit.
"""Builds a template: its steps run in a sandbox, and snapshots are stored on the way."""

from __future__ import annotations

import contextlib
import posixpath
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import msgspec

from atoll.errors import (
    AtollError,
    DeadlineError,
    ExecTimeoutError,
    FileError,
    FileMissingError,
    ImageNotFoundError,
    InvalidSpecError,
    TemplateBuildError,
)
from atoll.guest import put_tree
from atoll.protocol import CachedRequest, CachedStep, DefaultsRequest, SnapshotRequest
from atoll.sdk import _steps
from atoll.sdk._sync.images import Images
from atoll.sdk._sync.link import LONG_S, Link, ref
from atoll.sdk._sync.resolving import resolved
from atoll.sdk._sync.sandbox import Sandbox
from atoll.sdk._sync.start_command import started_command
from atoll.sdk._context import Context
from atoll.sdk._io_sync import call, in_thread
from atoll.sdk._lines import Lines
from atoll.sdk._placing import Placing
from atoll.types import (
    BUILD_ATTRIBUTE,
    BuildInfo,
    BuildLine,
    CopyStep,
    EnvStep,
    ImageAccess,
    Progress,
    RunStep,
    SandboxInfo,
    SandboxSpec,
    SnapshotInfo,
    StartCommand,
    Step,
    TemplateSpec,
    UserStep,
    WorkdirStep,
)

OnLine = Callable[[BuildLine], Any]
BASE_STEP = "base"
LAST_STEP = "finalize"
_OUTPUT_BYTES = 16384
_LIVE_MOST_BYTES = 16 << 20
_EMPTY_TAR = bytes(1024)


class Builder:
    """Builds one template.

    Args:
        link: The connection to the supervisor.
        build: The build, which has begun.
        spec: What to build.
        team: The team that owns the template.
        context: Where copied files come from.
        on_line: Called with each line of the log.
        timeout_s: Seconds for running and copying. Pulling and storing states have their own bounds.

    ``step`` says how far it is (``"base"``, a step's number from 1, or ``"finalize"``), ``image`` what it is based on.
    """

    def __init__(
        self,
        link: Link,
        build: BuildInfo,
        spec: TemplateSpec,
        *,
        team: str | None,
        context: Context,
        on_line: OnLine | None,
        timeout_s: float,
    ) -> None:
        self._link = link
        self._build = build
        self._spec = msgspec.structs.replace(spec, steps=[*spec.prepare, *spec.steps], prepare=[])
        self._prepared = len(spec.prepare)
        self._team = team
        self._context = context
        self._on_line = on_line
        self._end_at = time.monotonic() + timeout_s
        self._sandbox: Sandbox | None = None
        self._env: dict[str, str] = {}
        self._known: dict[str, str] = {}
        self._user = ""
        self._cwd = "/"
        self._changed = False
        self._sleeps = False
        self.step = BASE_STEP
        self.image: str | None = None

    def run(self) -> str:
        """Build the template and return the id of its snapshot.

        The caller ends the build, which kills its sandboxes.

        Raises:
            TemplateBuildError: A step failed.
            AtollError: The base is not available, or the host failed.
        """
        base = self._base()
        digests = in_thread(self._digests)
        keys = _steps.keys(self._spec, base[1], self._team, digests)
        kept = _steps.points(self._spec.steps)
        done, snapshot_id = self._cached(keys, kept)
        if done > len(self._spec.steps):
            self._say("the whole template was built before")
            return snapshot_id
        if done:
            base = ("snapshot", snapshot_id)
        if done > self._prepared:
            self._say(f"steps 1 to {done - self._prepared} were built before")
        self._start(base)
        for index in range(done, len(self._spec.steps)):
            self._do(self._spec.steps[index], index + 1 - self._prepared)
            if index in kept:
                snapshot_id = self._keep(keys[index])
                if self._sleeps and (index + 1 < len(self._spec.steps) or self._runs_something):
                    self._start(("snapshot", snapshot_id))
        self.step = LAST_STEP
        return self._finish(keys[-1], snapshot_id)

    def _base(self) -> tuple[Literal["image", "snapshot"], str]:
        """Return what the template starts from: its kind, and a value that identifies it."""
        if self._spec.template is not None:
            if self._spec.image is not None:
                raise InvalidSpecError("a template is built from an image or a template", hint="give one")
            found = resolved(self._link, self._spec.template, self._team)
            if found.snapshot_id is not None:
                self._say(f"FROM template {self._spec.template}")
                return "snapshot", found.snapshot_id
        name = self._spec.image or "base"
        self._say(f"FROM {name}")
        access = ImageAccess(
            team=self._team,
            login=self._spec.login,
            trusted=self._spec.trusted_image,
            public=self._spec.public_image,
        )
        info = Images.ensure(name, on_progress=_Steps(self._say).told, access=access)
        self.image = info.name
        return "image", info.digest

    def _digests(self) -> dict[int, str]:
        return {
            index: self._context.digest(step.sources, step.archive)
            for index, step in enumerate(self._spec.steps)
            if isinstance(step, CopyStep)
        }

    def _cached(self, keys: list[str], kept: list[int]) -> tuple[int, str]:
        """Return how many steps to skip (one more if all is built), and the snapshot of their result."""
        most = _steps.usable(self._spec)
        usable = [(index + 1, keys[index]) for index in (*kept, len(keys) - 1) if index < most]
        if not usable:
            return 0, ""
        wanted = CachedRequest(keys=[key for _, key in reversed(usable)])
        found = self._link.call("POST", f"{self._path}/cached", CachedStep, wanted, repeatable=True)
        return next(((done, found.snapshot_id) for done, key in usable if key == found.step_key), (0, ""))

    @property
    def _path(self) -> str:
        return f"/v1/builds/{ref(self._build.build_id)}"

    def _start(self, base: tuple[str, str]) -> None:
        """Replace the current sandbox, if there is one, by a new one of that base."""
        before, self._sandbox = self._sandbox, None
        if before is not None:
            before.kill()
            before.close()
        kind, which = base
        spec = SandboxSpec(
            image=which if kind == "image" else None,
            from_snapshot=which if kind == "snapshot" else None,
            limits=self._spec.limits.check(),
            team=self._team,
            attributes={BUILD_ATTRIBUTE: self._build.build_id},
        )
        link = Link()
        self._sandbox = link.make(
            "/v1/sandboxes", SandboxInfo, spec, lambda made: Sandbox(link, made)
        )
        info = self._sandbox.info()
        self.image = info.image
        self._env, self._user, self._cwd = dict(info.env), info.user, info.cwd
        # the image was erased, because nobody needs it any more
        with contextlib.suppress(ImageNotFoundError):
            self._known = dict((Images.get(info.image_digest)).env)
        self._changed = self._sleeps = False

    def _do(self, step: Step, number: int) -> None:
        if number > 0:
            self.step = str(number)
            count = len(self._spec.steps) - self._prepared
            self._say(f"[{number}/{count}] {_steps.described(step)}")
        match step:
            case EnvStep():
                for name, value in step.env.items():
                    self._env[name] = self._expanded(value)
                _steps.check_env(self._env)
                self._changed = True
            case UserStep():
                self._user = self._expanded(step.user)
                # an unknown user is reported at this step, not at one that follows
                self._made.files.stat("/", user=self._user)
                self._changed = True
            case WorkdirStep():
                self._cwd = self._path_of(step.path)
                self._unpack(iter([_EMPTY_TAR]), self._cwd, self._user, None)
                self._changed = True
            case CopyStep():
                self._copy(step)
            case RunStep():
                self._run(step)

    @property
    def _made(self) -> Sandbox:
        assert self._sandbox is not None  # the build starts a sandbox right after the base is known
        return self._sandbox

    def _expanded(self, text: str) -> str:
        return _steps.expanded(text, {**self._known, **self._env})

    def _path_of(self, text: str) -> str:
        return posixpath.normpath(posixpath.join(self._cwd, self._expanded(text)))

    def _copy(self, step: CopyStep) -> None:
        target = self._path_of(step.target)
        into = step.target.endswith("/") or len(step.sources) > 1 or _is_directory(self._made, target)
        owner = self._expanded(step.user) if step.user else self._user
        for source in map(self._expanded, step.sources):
            stopped = threading.Event()
            going_on = partial(_going_on, stopped, self._end_at)
            pieces = self._context.pieces(source, step.archive)
            placing = Placing(source, target, into=into, pieces=pieces, going_on=going_on)
            placed = placing.placed()
            try:
                # the first piece decides which directory to unpack into
                first = in_thread(next, placed)
                self._unpack(_chained(first, placed), placing.root, owner, step.mode)
            finally:
                stopped.set()
                # a thread that still reads ends at its next piece
                with contextlib.suppress(ValueError):
                    in_thread(placed.close)

    def _unpack(self, pieces: Iterator[bytes], root: str, owner: str, mode: int | None) -> None:
        request = put_tree(root, "root", owner=owner, mode=mode)
        try:
            self._made._agent.call(request, body=read_pieces(pieces), timeout_s=_left_s(self._end_at))
        except DeadlineError:
            _left_s(self._end_at)
            raise

    def _run(self, step: RunStep) -> None:
        self._apply()
        lines = Lines()
        out, errors = lines.of("info"), lines.of("warn")

        def told(text: str) -> None:
            for message in out(text):
                self._say(message)

        def warned(text: str) -> None:
            for message in errors(text):
                self._say(message, "warn")

        values: dict[str, Any] = {
            "cwd": self._cwd,
            "user": self._expanded(step.user) if step.user else None,
            "timeout_s": _left_s(self._end_at),
            "on_stdout": told,
            "on_stderr": warned,
            "max_output_bytes": _OUTPUT_BYTES,
        }
        try:
            if isinstance(step.command, str):
                result = self._made.run(step.command, **values)
            else:
                result = self._made.exec(step.command, **values)
        except ExecTimeoutError:
            raise _too_long() from None
        for level, message in lines.rest():
            self._say(message, level)
        if result.exit_code:
            raise _steps.failed(_steps.described(step), result)

    def _apply(self) -> None:
        """Give the sandbox the variables, user and directory that the steps have set."""
        if self._changed:
            self._default(DefaultsRequest(env=self._env, user=self._user, cwd=self._cwd))
            self._changed = False

    def _default(self, wanted: DefaultsRequest) -> None:
        path = f"/v1/sandboxes/{ref(self._made.id)}/defaults"
        self._link.call("POST", path, SandboxInfo, wanted, repeatable=wanted.start_command is None)

    def _keep(self, key: str) -> str:
        """Store the sandbox as it is now, and record which steps led to this state.

        A live snapshot copies everything that the sandbox has changed on its disk. If that is much, the
        sandbox is suspended first. That needs no copy if the kernel can freeze a layer. The next step then
        starts with a new sandbox.
        """
        self._apply()
        if (self._made.stats()).disk_bytes > _LIVE_MOST_BYTES:
            self._made.suspend()
            self._sleeps = True
        body = SnapshotRequest(build_id=self._build.build_id, comment=f"step {self.step} of a template")
        path = f"/v1/sandboxes/{ref(self._made.id)}/snapshots"
        kept = self._link.call("POST", path, SnapshotInfo, body, timeout_s=LONG_S)
        step = CachedStep(step_key=key, snapshot_id=kept.snapshot_id)
        self._link.send("POST", f"{self._path}/steps", step)
        return kept.snapshot_id

    def _finish(self, key: str, snapshot_id: str) -> str:
        """Run what has to run in every sandbox of the template, and store the result."""
        if not self._runs_something and not self._changed and snapshot_id:
            step = CachedStep(step_key=key, snapshot_id=snapshot_id)
            self._link.send("POST", f"{self._path}/steps", step)
            return snapshot_id
        self._apply()
        start, ready = self._spec.start_command, self._spec.ready_command
        started_command(self._made, start, ready, cwd=self._cwd, end_at=self._end_at, say=self._say)
        if start:
            command = StartCommand(start=start, ready=ready, user=self._user, cwd=self._cwd)
            self._default(DefaultsRequest(start_command=command))
        self._say("storing the template")
        return self._keep(key)

    @property
    def _runs_something(self) -> bool:
        return bool(self._spec.start_command or self._spec.ready_command)

    def _say(self, message: str, level: Literal["debug", "info", "warn", "error"] = "info") -> None:
        if self._on_line is not None:
            call(self._on_line, BuildLine(at=time.time(), level=level, message=message, step=self.step))

    def close(self) -> None:
        """Close the connections to the build's sandbox."""
        if self._sandbox is not None:
            self._sandbox.close()


class _Steps:
    """Reports each step of a long task once."""

    def __init__(self, say: Callable[..., Any]) -> None:
        self._say = say
        self._last = ""

    def told(self, progress: Progress) -> None:
        """Take a progress report."""
        if progress.step != self._last:
            self._last = progress.step
            self._say(progress.step, "debug")


def _is_directory(sandbox: Sandbox, path: str) -> bool:
    try:
        return (sandbox.files.stat(path, follow=True, user="root")).kind == "directory"
    except (FileMissingError, FileError):
        return False


def _chained(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def read_pieces(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Iterate over pieces that take a while to make. None of them is empty."""
    while piece := in_thread(next, pieces, b""):
        yield piece


def failure(error: BaseException) -> str:
    """Return the message to report for the error that ended a build."""
    return error.message if isinstance(error, AtollError) else f"it failed with {type(error).__name__}"


def _going_on(stopped: threading.Event, end_at: float) -> None:
    """Raise when a build that was cancelled, or has no time left, is to read nothing more."""
    if stopped.is_set():
        raise _too_long()
    _left_s(end_at)


def _left_s(end_at: float) -> float:
    """Return the seconds from now until a moment on the monotonic clock.

    Raises:
        TemplateBuildError: The moment has passed.
    """
    left_s = end_at - time.monotonic()
    if left_s <= 0:
        raise _too_long()
    return left_s


def _too_long() -> TemplateBuildError:
    return TemplateBuildError(
        "the build took too long", hint="give a longer timeout_s, or `atoll template build --timeout 4h`"
    )
