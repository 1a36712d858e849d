"""Builds that this server runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from atoll.errors import AtollError
from atoll.protocol import ours
from atoll.sdk import for_servers
from atoll.server.builds.logs import BuildLog, BuildLogs
from atoll.types import BuildInfo, BuildLine, TemplateSpec

_BUILD_S = 3600.0
_log = logging.getLogger(__name__)


class Begun(NamedTuple):
    """A build that has begun, and its task, which returns an error if the build fails."""

    build: BuildInfo
    task: asyncio.Task[BuildInfo | Exception]


class _Going(NamedTuple):
    """A build that has begun and not ended."""

    task: asyncio.Task[BuildInfo | Exception]
    log: BuildLog


class Builds:
    """Runs builds in the background, as long as the server runs.

    Args:
        logs: The store of build logs.
    """

    def __init__(self, logs: BuildLogs) -> None:
        self._logs = logs
        self._tasks: set[asyncio.Task[BuildInfo | Exception]] = set()
        self._going: dict[str, _Going] = {}

    async def begin(
        self,
        build_id: str,
        spec: TemplateSpec,
        team: str,
        archives: Mapping[str, Path],
        *,
        timeout_s: float = _BUILD_S,
        on_line: Callable[[BuildLine], Awaitable[None]] | None = None,
    ) -> Begun:
        """Begin a waiting build.

        Args:
            build_id: The build's id.
            spec: The specification to build.
            team: The team that owns the template.
            archives: The uploads that copy steps name.
            timeout_s: Seconds for running and copying.
            on_line: Called with each line of the log. The stored log keeps only its first lines.

        Raises:
            AtollError: The build cannot begin: it has begun before, or the team has too many builds.
        """
        begun: asyncio.Future[Begun] = asyncio.get_running_loop().create_future()

        def told(build: BuildInfo) -> None:
            self._going[build_id] = _Going(task, self._logs.begin(build_id))
            begun.set_result(Begun(build, task))

        async def add(line: BuildLine) -> None:
            self._going[build_id].log.add(line)
            if on_line is not None:
                await on_line(line)

        async def work() -> BuildInfo | Exception:
            try:
                return await for_servers.carry_out(
                    build_id,
                    spec,
                    team=team,
                    archives=archives,
                    on_begun=told,
                    on_line=add,
                    timeout_s=timeout_s,
                )
            except Exception as error:
                return self._failed(build_id, begun, ours(error))
            finally:
                # A second request to begin the same build must not remove the first one's entry.
                if (going := self._going.get(build_id)) and going.task is task:
                    del self._going[build_id]
                begun.cancel()

        task = asyncio.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(begun)

    def _failed(self, build_id: str, begun: asyncio.Future[Begun], error: Exception) -> Exception:
        if not isinstance(error, AtollError):
            _log.error("a build failed", exc_info=error)
        if not begun.done():
            begun.set_exception(error)
        elif isinstance(error, AtollError):
            self._going[build_id].log.add(BuildLine(at=time.time(), level="error", message=error.message))
        return error

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
