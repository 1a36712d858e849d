# Made by scripts/unasync.py from sdk/_async/remote_building.py: do not edit.
"""Lets a server on another machine build a template: sends it the definition and the files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from atoll.errors import AtollError, StateError, SupervisorError
from atoll.protocol import BuildNews, BuildRun, FinishRequest, raise_body
from atoll.sdk._sync.api import Api, ref
from atoll.sdk._sync.building import failure
from atoll.sdk._sync.http import Answer
from atoll.sdk._sync.stage import read_pieces
from atoll.sdk._context import Context
from atoll.sdk._io_sync import call, in_thread, shielded
from atoll.sdk._steps import stages_needed
from atoll.types import BuildInfo, BuildLine, CopyStep, StageSpec, Step, TemplateSpec
from atoll.types.internal import from_json

_END_S = 120.0
# the server gives a sign of life every 20 seconds
_SILENCE_S = 180.0
_LINE_BYTES = 1 << 20


class RemoteBuilder:
    """Lets a server build one template.

    Args:
        api: The connection to the server.
        build_id: The build, which waits.
        spec: What to build.
        context: Where copied files come from.
        on_begun: Called once nobody else can begin the build.
        on_line: Called with each line of its log.
    """

    def __init__(
        self,
        api: Api,
        build_id: str,
        spec: TemplateSpec,
        *,
        context: Context,
        on_begun: Callable[[BuildInfo], Any] | None,
        on_line: Callable[[BuildLine], Any] | None,
    ) -> None:
        self._api = api
        self._path = f"/v1/builds/{ref(build_id)}"
        self._spec = spec
        self._context = context
        self._on_begun = on_begun
        self._on_line = on_line

    def run(self, timeout_s: float) -> BuildInfo:
        """Send the definition and the files, and return when the build is ready.

        A caller that stops waiting cancels it.

        Args:
            timeout_s: Seconds for running and copying.
        """
        try:
            spec = msgspec.structs.replace(
                self._spec,
                prepare=[self._sent(step) for step in self._spec.prepare],
                steps=[self._sent(step) for step in self._spec.steps],
                ignore=None,
                stages={name: self._sent_stage(name) for name in stages_needed(self._spec)},
            )
            wanted = BuildRun(spec=spec, timeout_s=timeout_s)
            answer = self._api.stream("POST", f"{self._path}/run", wanted, silence_s=_SILENCE_S)
            try:
                return self._followed(answer)
            finally:
                answer.close()
        except StateError:
            # another client began the build, or it is over
            raise
        except BaseException as error:
            state: Literal["failed", "cancelled"] = "failed" if isinstance(error, Exception) else "cancelled"
            over = FinishRequest(state=state, reason=failure(error))
            with shielded(_END_S), contextlib.suppress(AtollError):
                # if this call fails, the server notices that the connection is gone
                self._api.call("POST", f"{self._path}/finish", BuildInfo, over, timeout_s=_END_S)
            raise

    def _sent_stage(self, name: str) -> StageSpec:
        stage = self._spec.stages[name]
        return msgspec.structs.replace(stage, steps=[self._sent(step) for step in stage.steps])

    def _sent(self, step: Step) -> Step:
        """Upload a copy step's files, unless the server has them. Return the step with the upload's name."""
        if not isinstance(step, CopyStep) or step.stage is not None:
            return step
        digest = in_thread(self._context.upload_name, step.sources, step.archive)
        path = f"/v1/uploads/{digest}"
        if not self._api.call("GET", path, bool):
            pieces = in_thread(self._context.upload, step.sources, step.archive)
            self._api.upload(path, bool, read_pieces(pieces))
        return msgspec.structs.replace(step, archive=digest)

    def _followed(self, answer: Answer) -> BuildInfo:
        rest = b""
        while data := answer.read():
            *lines, rest = (rest + data).split(b"\n")
            for news in _read(lines):
                if news.error is not None:
                    raise_body(news.error)
                if news.line is not None and self._on_line is not None:
                    call(self._on_line, news.line)
                if news.build is not None and news.build.state == "ready":
                    return news.build
                if news.build is not None and self._on_begun is not None:
                    call(self._on_begun, news.build)
            if len(rest) > _LINE_BYTES:
                break
        raise SupervisorError("the server's answer ended before the build", hint="see whether it runs")


def _read(lines: list[bytes]) -> Iterator[BuildNews]:
    for line in filter(None, lines):
        try:
            yield from_json(line, BuildNews)
        except msgspec.MsgspecError as error:
            raise SupervisorError(f"the server sent an invalid answer: {error}") from None
