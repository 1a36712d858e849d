"""One stage of a build: its steps run in a sandbox, and snapshots are stored on the way."""

from __future__ import annotations

import contextlib
import posixpath
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from atoll.errors import (
    DeadlineError,
    ExecTimeoutError,
    FileError,
    FileMissingError,
    ImageNotFoundError,
    TemplateBuildError,
)
from atoll.guest import GuestRequest, put_tree
from atoll.protocol import CachedRequest, CachedStep, DefaultsRequest, SnapshotRequest
from atoll.sdk import _steps
from atoll.sdk._async.api import LONG_S, AsyncApi, ref
from atoll.sdk._async.http import Upload
from atoll.sdk._async.images import AsyncImages
from atoll.sdk._async.sandbox import AsyncSandbox
from atoll.sdk._async.stage_files import found_in_stage, tree_in_stage
from atoll.sdk._context import Context, is_pattern
from atoll.sdk._io_async import call, in_thread
from atoll.sdk._lines import Lines
from atoll.sdk._placing import Placing
from atoll.types import (
    BuildInfo,
    BuildLine,
    CopyStep,
    EnvStep,
    Limits,
    RunStep,
    SandboxInfo,
    SandboxSpec,
    SnapshotInfo,
    Step,
    UserStep,
    WorkdirStep,
)
from atoll.types.internal import BUILD_ATTRIBUTE

OnLine = Callable[[BuildLine], Any]
Base = tuple[Literal["image", "snapshot"], str]
BASE_STEP = "base"
_OUTPUT_BYTES = 16384
_LIVE_MOST_BYTES = 16 << 20
_EMPTY_TAR = bytes(1024)


@dataclass(kw_only=True, slots=True)
class AsyncBuildJob:
    """The parts that the stages of one build share.

    ``step`` says how far the build is; ``stage`` returns a sandbox with the files of a stage.
    """

    api: AsyncApi
    build: BuildInfo
    team: str | None
    limits: Limits
    context: Context
    on_line: OnLine | None
    end_at: float
    stage: Callable[[str], Awaitable[AsyncSandbox]]
    step: str = BASE_STEP

    @property
    def path(self) -> str:
        """The route of the build."""
        return f"/v1/builds/{ref(self.build.build_id)}"

    async def say(self, message: str, level: Literal["debug", "info", "warn", "error"] = "info") -> None:
        """Add a line to the log."""
        if self.on_line is not None:
            await call(self.on_line, BuildLine(at=time.time(), level=level, message=message, step=self.step))

    async def record(self, key: str, snapshot_id: str) -> None:
        """Record which steps led to a snapshot."""
        step = CachedStep(step_key=key, snapshot_id=snapshot_id)
        await self.api.send("POST", f"{self.path}/steps", step)


class AsyncStage:
    """Runs a series of steps in a sandbox of its own.

    Args:
        job: The build.
        steps: The steps.
        base: The base from which they start.
        name: The stage's name in the log; "" is the template itself.
        prepared: How many of the first steps count as part of the base.
    """

    def __init__(
        self, job: AsyncBuildJob, steps: Sequence[Step], base: Base, *, name: str = "", prepared: int = 0
    ) -> None:
        self._job = job
        self._steps = steps
        self._base = base
        self._name = name
        self._prepared = prepared
        self._sandbox: AsyncSandbox | None = None
        self._env: dict[str, str] = {}
        self._known: dict[str, str] = {}
        self.user = ""
        self.cwd = "/"
        self.changed = False
        self._sleeps = False
        self.image: str | None = None

    async def cached(self, keys: Sequence[str], most: int) -> tuple[int, str]:
        """Return how many steps were built before (one more if all is), and the snapshot of their result.

        Args:
            keys: The keys of the states after each step, and what follows.
            most: How many of them may come from earlier builds.
        """
        kept = [*_steps.points(self._steps), *range(len(self._steps), len(keys))]
        usable = [(index + 1, keys[index]) for index in kept if index < most]
        if not usable:
            return 0, ""
        wanted = CachedRequest(keys=[key for _, key in reversed(usable)])
        path = f"{self._job.path}/cached"
        found = await self._job.api.call("POST", path, CachedStep, wanted, repeatable=True)
        return next(((done, found.snapshot_id) for done, key in usable if key == found.step_key), (0, ""))

    async def run(self, keys: Sequence[str], done: int, snapshot_id: str, *, goes_on: bool) -> str:
        """Run the steps that were not built before, and return the snapshot of the result, or "".

        Args:
            keys: The keys of the states after each step.
            done: How many steps were built before.
            snapshot_id: The snapshot of their result.
            goes_on: Whether something runs in the sandbox afterwards.
        """
        if done > self._prepared:
            of = f" of {self._name}" if self._name else ""
            await self._job.say(f"steps 1 to {done - self._prepared}{of} were built before")
        await self._start(("snapshot", snapshot_id) if done else self._base)
        kept = _steps.points(self._steps)
        for index in range(done, len(self._steps)):
            await self._do(self._steps[index], index + 1 - self._prepared)
            if index in kept:
                snapshot_id = await self.keep(keys[index])
                if self._sleeps and (index + 1 < len(self._steps) or goes_on):
                    await self._start(("snapshot", snapshot_id))
        return snapshot_id

    async def _start(self, base: Base) -> None:
        """Replace the current sandbox, if there is one, by a new one of that base."""
        before, self._sandbox = self._sandbox, None
        if before is not None:
            await before.kill()
            before.close()
        kind, which = base
        spec = SandboxSpec(
            image=which if kind == "image" else None,
            from_snapshot=which if kind == "snapshot" else None,
            limits=self._job.limits.check(),
            team=self._job.team,
            attributes={BUILD_ATTRIBUTE: self._job.build.build_id},
        )
        api = AsyncApi()
        self._sandbox = await api.make(
            "/v1/sandboxes", SandboxInfo, spec, lambda made: AsyncSandbox(api, made)
        )
        info = await self._sandbox.info()
        self.image = info.image
        self._env, self.user, self.cwd = dict(info.env), info.user, info.cwd
        # the image was erased, because nobody needs it any more
        with contextlib.suppress(ImageNotFoundError):
            self._known = dict((await AsyncImages.get(info.image_digest)).env)
        self.changed = self._sleeps = False

    async def _do(self, step: Step, number: int) -> None:
        if number > 0:
            name = f"{self._name} " if self._name else ""
            self._job.step = f"{name}{number}"
            count = len(self._steps) - self._prepared
            await self._job.say(f"[{name}{number}/{count}] {_steps.described(step)}")
        match step:
            case EnvStep():
                for name, value in step.env.items():
                    self._env[name] = self._expanded(value)
                _steps.check_env(self._env)
                self.changed = True
            case UserStep():
                self.user = self._expanded(step.user)
                # an unknown user is reported at this step, not at one that follows
                await self.sandbox.files.stat("/", user=self.user)
                self.changed = True
            case WorkdirStep():
                self.cwd = self._path_of(step.path)
                await self._unpack(
                    put_tree(self.cwd, "root", owner=self.user), read_pieces(iter([_EMPTY_TAR]))
                )
                self.changed = True
            case CopyStep() if step.stage is not None:
                await self._copy_of_stage(step, step.stage)
            case CopyStep():
                await self._copy(step)
            case RunStep():
                await self._run(step)

    @property
    def sandbox(self) -> AsyncSandbox:
        """The sandbox that the steps run in."""
        assert self._sandbox is not None  # run starts one before anything else
        return self._sandbox

    def _expanded(self, text: str) -> str:
        return _steps.expanded(text, {**self._known, **self._env})

    def _path_of(self, text: str) -> str:
        return posixpath.normpath(posixpath.join(self.cwd, self._expanded(text)))

    async def _is_into(self, step: CopyStep, target: str) -> bool:
        """Tell whether a copy's target is certainly a directory."""
        if step.target.endswith("/") or len(step.sources) > 1:
            return True
        return await _is_directory(self.sandbox, target)

    async def _copy(self, step: CopyStep) -> None:
        target = self._path_of(step.target)
        into = await self._is_into(step, target)
        owner = self._expanded(step.user) if step.user else self.user
        for source in map(self._expanded, step.sources):
            stopped = threading.Event()
            going_on = partial(_going_on, stopped, self._job.end_at)
            pieces = self._job.context.pieces(source, step.archive)
            placing = Placing(source, target, into=into, pieces=pieces, going_on=going_on)
            placed = placing.placed()
            try:
                # the first piece decides which directory to unpack into
                first = await in_thread(next, placed)
                request = put_tree(placing.root, "root", owner=owner, mode=step.mode)
                await self._unpack(request, read_pieces(_chained(first, placed)))
            finally:
                stopped.set()
                # a thread that still reads ends at its next piece
                with contextlib.suppress(ValueError):
                    await in_thread(placed.close)

    async def _copy_of_stage(self, step: CopyStep, stage: str) -> None:
        """Copy files from the sandbox of another stage straight into this one's."""
        label = self._job.step
        source = await self._job.stage(stage)
        self._job.step = label
        target = self._path_of(step.target)
        into = await self._is_into(step, target)
        owner = self._expanded(step.user) if step.user else None
        for text in map(self._expanded, step.sources):
            for path in await found_in_stage(source, stage, text):
                is_into = into or is_pattern(text)
                root, pieces = await tree_in_stage(source, path, target, into=is_into)
                request = put_tree(root, "root", owner=owner, keeps_owners=owner is None, mode=step.mode)
                await self._unpack(request, pieces)

    async def _unpack(self, request: GuestRequest, body: Upload) -> None:
        end_at = self._job.end_at
        try:
            await self.sandbox._agent.call(request, body=body, timeout_s=left_s(end_at))
        except DeadlineError:
            left_s(end_at)
            raise

    async def _run(self, step: RunStep) -> None:
        await self.apply()
        lines = Lines()
        out, errors = lines.of("info"), lines.of("warn")

        async def told(text: str) -> None:
            for message in out(text):
                await self._job.say(message)

        async def warned(text: str) -> None:
            for message in errors(text):
                await self._job.say(message, "warn")

        values: dict[str, Any] = {
            "cwd": self.cwd,
            "user": self._expanded(step.user) if step.user else None,
            "timeout_s": left_s(self._job.end_at),
            "on_stdout": told,
            "on_stderr": warned,
            "max_output_bytes": _OUTPUT_BYTES,
        }
        try:
            if isinstance(step.command, str):
                result = await self.sandbox.run(step.command, **values)
            else:
                result = await self.sandbox.exec(step.command, **values)
        except ExecTimeoutError:
            raise _too_long() from None
        for level, message in lines.rest():
            await self._job.say(message, level)
        if result.exit_code:
            raise _steps.failed(_steps.described(step), result)

    async def apply(self) -> None:
        """Give the sandbox the variables, user and directory that the steps have set."""
        if self.changed:
            await self.default(DefaultsRequest(env=self._env, user=self.user, cwd=self.cwd))
            self.changed = False

    async def default(self, wanted: DefaultsRequest) -> None:
        """Give the sandbox other defaults."""
        path = f"/v1/sandboxes/{ref(self.sandbox.id)}/defaults"
        repeatable = wanted.start_command is None
        await self._job.api.call("POST", path, SandboxInfo, wanted, repeatable=repeatable)

    async def keep(self, key: str) -> str:
        """Store the sandbox as it is now, and record which steps led to this state.

        A live snapshot copies everything that the sandbox has changed on its disk. If that is much, the
        sandbox is suspended first. That needs no copy if the kernel can freeze a layer. The next step then
        starts with a new sandbox.
        """
        await self.apply()
        if (await self.sandbox.stats()).disk_bytes > _LIVE_MOST_BYTES:
            await self.sandbox.suspend()
            self._sleeps = True
        job = self._job
        body = SnapshotRequest(build_id=job.build.build_id, comment=f"step {job.step} of a template")
        path = f"/v1/sandboxes/{ref(self.sandbox.id)}/snapshots"
        kept = await job.api.call("POST", path, SnapshotInfo, body, timeout_s=LONG_S)
        await job.record(key, kept.snapshot_id)
        return kept.snapshot_id

    def close(self) -> None:
        """Close the connections to the sandbox."""
        if self._sandbox is not None:
            self._sandbox.close()


async def _is_directory(sandbox: AsyncSandbox, path: str) -> bool:
    try:
        return (await sandbox.files.stat(path, follow=True, user="root")).kind == "directory"
    except (FileMissingError, FileError):
        return False


def _chained(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


async def read_pieces(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Iterate over pieces that take a while to make. None of them is empty."""
    while piece := await in_thread(next, pieces, b""):
        yield piece


def _going_on(stopped: threading.Event, end_at: float) -> None:
    """Raise if the build was cancelled or has no time left, so that it reads nothing more."""
    if stopped.is_set():
        raise _too_long()
    left_s(end_at)


def left_s(end_at: float) -> float:
    """Return the seconds from now until a moment on the monotonic clock.

    Raises:
        TemplateBuildError: The moment has passed.
    """
    left = end_at - time.monotonic()
    if left <= 0:
        raise _too_long()
    return left


def _too_long() -> TemplateBuildError:
    return TemplateBuildError(
        "the build took too long", hint="give a longer timeout_s, or `atoll template build --timeout 4h`"
    )
