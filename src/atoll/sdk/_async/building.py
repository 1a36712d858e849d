"""Builds a template: its stages run in sandboxes, and snapshots are stored on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from atoll.errors import AtollError, InvalidSpecError
from atoll.protocol import DefaultsRequest
from atoll.sdk import _steps
from atoll.sdk._async.api import AsyncApi
from atoll.sdk._async.images import AsyncImages
from atoll.sdk._async.resolving import resolved
from atoll.sdk._async.sandbox import AsyncSandbox
from atoll.sdk._async.stage import AsyncBuildJob, AsyncStage, Base, OnLine
from atoll.sdk._async.start_command import started_command
from atoll.sdk._context import Context
from atoll.sdk._io_async import in_thread
from atoll.sdk._progress import Headings
from atoll.types import BuildInfo, CopyStep, ImageAccess, Progress, StartCommand, Step, TemplateSpec

LAST_STEP = "finalize"


class AsyncBuilder:
    """Builds one template.

    Args:
        api: The connection to the supervisor.
        build: The build, which has begun.
        spec: What to build.
        team: The team that owns the template.
        context: Where copied files come from.
        on_line: Called with each line of the log.
        timeout_s: Seconds for running and copying. Pulling and storing states have their own bounds.
    """

    def __init__(
        self,
        api: AsyncApi,
        build: BuildInfo,
        spec: TemplateSpec,
        *,
        team: str | None,
        context: Context,
        on_line: OnLine | None,
        timeout_s: float,
    ) -> None:
        self._spec = msgspec.structs.replace(spec, steps=[*spec.prepare, *spec.steps], prepare=[])
        self._prepared = len(spec.prepare)
        self._job = AsyncBuildJob(
            api=api,
            build=build,
            team=team,
            limits=spec.limits,
            context=context,
            on_line=on_line,
            end_at=time.monotonic() + timeout_s,
            stage=self._stage,
        )
        self._stages: dict[str, AsyncStage] = {}
        self._stage_keys: dict[str, list[str]] = {}
        self._built: set[str] = set()
        self._last: AsyncStage | None = None
        self._image: str | None = None

    @property
    def step(self) -> str:
        """The current step: ``"base"``, ``"finalize"``, or a number from 1, with its stage before it."""
        return self._job.step

    @property
    def image(self) -> str | None:
        """The image that the template is based on."""
        return (self._last.image if self._last else None) or self._image

    async def run(self) -> str:
        """Build the template and return the id of its snapshot.

        The caller ends the build, which kills its sandboxes.

        Raises:
            TemplateBuildError: A step failed.
            AtollError: The base is not available, or the host failed.
        """
        for name in _steps.stages_needed(self._spec):
            await self._plan(name)
        spec, base = self._spec, await self._base()
        keys = _steps.keys(spec, base[1], self._job.team, await self._digests(spec.steps))
        last = self._last = AsyncStage(self._job, spec.steps, base, prepared=self._prepared)
        done, snapshot_id = await last.cached(keys, _steps.usable(spec))
        if done > len(spec.steps):
            await self._job.say("the whole template was built before")
            return snapshot_id
        snapshot_id = await last.run(keys, done, snapshot_id, goes_on=self._runs_something)
        self._job.step = LAST_STEP
        return await self._finish(last, keys[-1], snapshot_id)

    async def _plan(self, name: str) -> None:
        """Find the base of a stage, and the keys of its states."""
        stage = self._spec.stages[name]
        image = stage.image or "base"
        await self._job.say(f"FROM {image} AS {name}" if stage.steps else f"FROM {image}")
        access = ImageAccess(team=self._job.team, trusted=stage.trusted_image, public=stage.public_image)
        base = await self._ensured(image, access)
        digests = await self._digests(stage.steps)
        team, limits = self._job.team, self._spec.limits
        self._stage_keys[name] = _steps.stage_keys(stage.steps, base[1], team, limits, digests)
        self._stages[name] = AsyncStage(self._job, stage.steps, base, name=name)

    async def _stage(self, name: str) -> AsyncSandbox:
        """Return a sandbox with the files of a stage. Build the stage if it was not built."""
        stage, keys = self._stages[name], self._stage_keys[name][1:]
        if name not in self._built:
            most = 0 if self._spec.force else _steps.unforced(self._spec.stages[name].steps)
            done, snapshot_id = await stage.cached(keys, most)
            await stage.run(keys, done, snapshot_id, goes_on=True)
            self._built.add(name)
        return stage.sandbox

    async def _base(self) -> Base:
        """Return the base of the template: its kind, and a value that identifies it."""
        if self._spec.template is not None:
            if self._spec.image is not None:
                raise InvalidSpecError("a template is built from an image or a template", hint="give one")
            found = await resolved(self._job.api, self._spec.template, self._job.team)
            if found.snapshot_id is not None:
                await self._job.say(f"FROM template {self._spec.template}")
                return "snapshot", found.snapshot_id
        name = self._spec.image or "base"
        await self._job.say(f"FROM {name}")
        access = ImageAccess(
            team=self._job.team,
            login=self._spec.login,
            trusted=self._spec.trusted_image,
            public=self._spec.public_image,
        )
        return await self._ensured(name, access)

    async def _ensured(self, name: str, access: ImageAccess) -> Base:
        info = await AsyncImages.ensure(name, on_progress=_Steps(self._job.say).told, access=access)
        self._image = info.name
        return "image", info.digest

    async def _digests(self, steps: Sequence[Step]) -> dict[int, str]:
        """Return a digest of each copy step's files; for a stage's files, the key of its last state."""
        found = {}
        for index, step in enumerate(steps):
            if isinstance(step, CopyStep) and step.stage is not None:
                found[index] = self._stage_keys[step.stage][-1]
            elif isinstance(step, CopyStep):
                sources = _steps.known_sources(steps, index)
                found[index] = await in_thread(self._job.context.digest, sources, step.archive)
        return found

    async def _finish(self, last: AsyncStage, key: str, snapshot_id: str) -> str:
        """Run the programs that every sandbox of the template runs, and store the result."""
        if not self._runs_something and not last.changed and snapshot_id:
            await self._job.record(key, snapshot_id)
            return snapshot_id
        await last.apply()
        start, ready = self._spec.start_command, self._spec.ready_command
        await started_command(
            last.sandbox, start, ready, cwd=last.cwd, end_at=self._job.end_at, say=self._job.say
        )
        if start:
            command = StartCommand(start=start, ready=ready, user=last.user, cwd=last.cwd)
            await last.default(DefaultsRequest(start_command=command))
        await self._job.say("storing the template")
        return await last.keep(key)

    @property
    def _runs_something(self) -> bool:
        return bool(self._spec.start_command or self._spec.ready_command)

    def close(self) -> None:
        """Close the connections to the build's sandboxes."""
        for stage in (*self._stages.values(), self._last):
            if stage is not None:
                stage.close()


class _Steps:
    """Reports each step of a long task once, and its heading as a line of its own."""

    def __init__(self, say: Callable[..., Any]) -> None:
        self._say = say
        self._last = ""
        self._headings = Headings()

    async def told(self, progress: Progress) -> None:
        """Take a progress report."""
        if heading := self._headings.new(progress):
            await self._say(heading)
        if progress.step != self._last:
            self._last = progress.step
            await self._say(progress.step, "debug")


def failure(error: BaseException) -> str:
    """Return the message to report for the error that ended a build."""
    return error.message if isinstance(error, AtollError) else f"it failed with {type(error).__name__}"
