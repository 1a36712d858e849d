"""Builds that this server runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from atoll.errors import AtollError
from atoll.protocol import ours
from atoll.sdk import AsyncTemplates
from atoll.server.builds.logs import BuildLog, BuildLogs
from atoll.types import BuildInfo, BuildLine, TemplateSpec

_log = logging.getLogger(__name__)


class _Going(NamedTuple):
    """A build that has begun and not ended."""

    task: asyncio.Task[None]
    log: BuildLog


class Builds:
    """Runs builds in the background, as long as the server runs.

    Args:
        logs: The store of build logs.
    """

    def __init__(self, logs: BuildLogs) -> None:
        self._logs = logs
        self._tasks: set[asyncio.Task[None]] = set()
        self._going: dict[str, _Going] = {}

    async def begin(self, build_id: str, spec: TemplateSpec, team: str, archives: Mapping[str, Path]) -> None:
        """Begin a waiting build.

        Raises:
            AtollError: The build cannot begin: it has begun before, or the team has too many builds.
        """
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def told(_: BuildInfo) -> None:
            self._going[build_id] = _Going(task, self._logs.begin(build_id))
            begun.set_result(None)

        async def work() -> None:
            try:
                await AsyncTemplates.carry_out(
                    build_id,
                    spec,
                    team=team,
                    archives=archives,
                    on_begun=told,
                    on_line=lambda line: self._going[build_id].log.add(line),
                )
            except Exception as error:
                self._failed(build_id, begun, ours(error))
            finally:
                # A second request to begin the same build must not remove the first one's entry.
                if (going := self._going.get(build_id)) and going.task is task:
                    del self._going[build_id]
                begun.cancel()

        task = asyncio.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(begun)

    def _failed(self, build_id: str, begun: asyncio.Future[None], error: BaseException) -> None:
        if not isinstance(error, AtollError):
            _log.error("a build failed", exc_info=error)
        if not begun.done():
            begun.set_exception(error)
        elif isinstance(error, AtollError):
            self._going[build_id].log.add(BuildLine(at=time.time(), level="error", message=error.message))

    async def forget(self, build_ids: set[str]) -> None:
        """Cancel the builds that run here and wait for their end. Remove the logs of all given builds."""
        tasks = [going.task for build_id, going in self._going.items() if build_id in build_ids]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.to_thread(self._logs.forget, build_ids)

    async def lines(self, build_id: str) -> list[BuildLine]:
        """Return the stored log of a build, no matter which server ran the build."""
        if going := self._going.get(build_id):
            return going.log.lines
        return await asyncio.to_thread(self._logs.read, build_id)
