# Made by scripts/unasync.py from sdk/_async/building.py: do not edit.
"""Builds a template: its stages run in sandboxes, and snapshots are stored on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from atoll.errors import AtollError, InvalidSpecError
from atoll.protocol import DefaultsRequest
from atoll.sdk import _steps
from atoll.sdk._sync.api import Api
from atoll.sdk._sync.images import Images
from atoll.sdk._sync.resolving import resolved
from atoll.sdk._sync.sandbox import Sandbox
from atoll.sdk._sync.stage import BuildJob, Stage, Base, OnLine
from atoll.sdk._sync.start_command import started_command
from atoll.sdk._context import Context
from atoll.sdk._io_sync import in_thread
from atoll.sdk._progress import Headings
from atoll.types import BuildInfo, CopyStep, ImageAccess, Progress, StartCommand, Step, TemplateSpec

LAST_STEP = "finalize"


class Builder:
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
        api: Api,
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
        self._job = BuildJob(
            api=api,
            build=build,
            team=team,
            limits=spec.limits,
            context=context,
            on_line=on_line,
            end_at=time.monotonic() + timeout_s,
            stage=self._stage,
        )
        self._stages: dict[str, Stage] = {}
        self._stage_keys: dict[str, list[str]] = {}
        self._built: set[str] = set()
        self._last: Stage | None = None
        self._image: str | None = None

    @property
    def step(self) -> str:
        """The current step: ``"base"``, ``"finalize"``, or a number from 1, with its stage before it."""
        return self._job.step

    @property
    def image(self) -> str | None:
        """The image that the template is based on."""
        return (self._last.image if self._last else None) or self._image

    def run(self) -> str:
        """Build the template and return the id of its snapshot.

        The caller ends the build, which kills its sandboxes.

        Raises:
            TemplateBuildError: A step failed.
            AtollError: The base is not available, or the host failed.
        """
        for name in _steps.stages_needed(self._spec):
            self._plan(name)
        spec, base = self._spec, self._base()
        keys = _steps.keys(spec, base[1], self._job.team, self._digests(spec.steps))
        last = self._last = Stage(self._job, spec.steps, base, prepared=self._prepared)
        done, snapshot_id = last.cached(keys, _steps.usable(spec))
        if done > len(spec.steps):
            self._job.say("the whole template was built before")
            return snapshot_id
        snapshot_id = last.run(keys, done, snapshot_id, goes_on=self._runs_something)
        self._job.step = LAST_STEP
        return self._finish(last, keys[-1], snapshot_id)

    def _plan(self, name: str) -> None:
        """Find the base of a stage, and the keys of its states."""
        stage = self._spec.stages[name]
        image = stage.image or "base"
        self._job.say(f"FROM {image} AS {name}" if stage.steps else f"FROM {image}")
        access = ImageAccess(team=self._job.team, trusted=stage.trusted_image, public=stage.public_image)
        base = self._ensured(image, access)
        digests = self._digests(stage.steps)
        team, limits = self._job.team, self._spec.limits
        self._stage_keys[name] = _steps.stage_keys(stage.steps, base[1], team, limits, digests)
        self._stages[name] = Stage(self._job, stage.steps, base, name=name)

    def _stage(self, name: str) -> Sandbox:
        """Return a sandbox with the files of a stage. Build the stage if it was not built."""
        stage, keys = self._stages[name], self._stage_keys[name][1:]
        if name not in self._built:
            most = 0 if self._spec.force else _steps.unforced(self._spec.stages[name].steps)
            done, snapshot_id = stage.cached(keys, most)
            stage.run(keys, done, snapshot_id, goes_on=True)
            self._built.add(name)
        return stage.sandbox

    def _base(self) -> Base:
        """Return the base of the template: its kind, and a value that identifies it."""
        if self._spec.template is not None:
            if self._spec.image is not None:
                raise InvalidSpecError("a template is built from an image or a template", hint="give one")
            found = resolved(self._job.api, self._spec.template, self._job.team)
            if found.snapshot_id is not None:
                self._job.say(f"FROM template {self._spec.template}")
                return "snapshot", found.snapshot_id
        name = self._spec.image or "base"
        self._job.say(f"FROM {name}")
        access = ImageAccess(
            team=self._job.team,
            login=self._spec.login,
            trusted=self._spec.trusted_image,
            public=self._spec.public_image,
        )
        return self._ensured(name, access)

    def _ensured(self, name: str, access: ImageAccess) -> Base:
        info = Images.ensure(name, on_progress=_Steps(self._job.say).told, access=access)
        self._image = info.name
        return "image", info.digest

    def _digests(self, steps: Sequence[Step]) -> dict[int, str]:
        """Return a digest of each copy step's files; for a stage's files, the key of its last state."""
        found = {}
        for index, step in enumerate(steps):
            if isinstance(step, CopyStep) and step.stage is not None:
                found[index] = self._stage_keys[step.stage][-1]
            elif isinstance(step, CopyStep):
                sources = _steps.known_sources(steps, index)
                found[index] = in_thread(self._job.context.digest, sources, step.archive)
        return found

    def _finish(self, last: Stage, key: str, snapshot_id: str) -> str:
        """Run the programs that every sandbox of the template runs, and store the result."""
        if not self._runs_something and not last.changed and snapshot_id:
            self._job.record(key, snapshot_id)
            return snapshot_id
        last.apply()
        start, ready = self._spec.start_command, self._spec.ready_command
        started_command(
            last.sandbox, start, ready, cwd=last.cwd, end_at=self._job.end_at, say=self._job.say
        )
        if start:
            command = StartCommand(start=start, ready=ready, user=last.user, cwd=last.cwd)
            last.default(DefaultsRequest(start_command=command))
        self._job.say("storing the template")
        return last.keep(key)

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

    def told(self, progress: Progress) -> None:
        """Take a progress report."""
        if heading := self._headings.new(progress):
            self._say(heading)
        if progress.step != self._last:
            self._last = progress.step
            self._say(progress.step, "debug")


def failure(error: BaseException) -> str:
    """Return the message to report for the error that ended a build."""
    return error.message if isinstance(error, AtollError) else f"it failed with {type(error).__name__}"
