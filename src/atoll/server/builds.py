"""Builds that go on in this server, and the logs of the newest ones."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from atoll.errors import AtollError
from atoll.sdk import AsyncTemplates
from atoll.types import BuildInfo, BuildLine, TemplateSpec

_LINES_MOST = 10_000
_TEXT_MOST = 2 << 20
_LOGS_KEPT = 64
_CUT = "the log is too long: the rest of it is not kept"
_log = logging.getLogger(__name__)


@dataclass
class BuildLog:
    """The lines of one build: the first ten thousand, and 2 MiB at most."""

    lines: list[BuildLine] = field(default_factory=list)
    size: int = 0

    def add(self, line: BuildLine) -> None:
        """Keep a line, if there is room."""
        if self.size > _TEXT_MOST or len(self.lines) > _LINES_MOST:
            return
        self.size += len(line.message)
        is_last = self.size > _TEXT_MOST or len(self.lines) == _LINES_MOST
        self.lines.append(BuildLine(at=line.at, level="warn", message=_CUT) if is_last else line)


class Builds:
    """Does builds in the background, as long as the server runs."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._logs: OrderedDict[str, BuildLog] = OrderedDict()

    async def begin(self, build_id: str, spec: TemplateSpec, team: str, archives: Mapping[str, Path]) -> None:
        """Begin a build that waits.

        Raises:
            AtollError: It cannot be begun: it was before, or the team has too many.
        """
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        log = BuildLog()

        def told(_: BuildInfo) -> None:
            self._remember(build_id, log)
            begun.set_result(None)

        async def work() -> None:
            try:
                await AsyncTemplates.carry_out(
                    build_id, spec, team=team, archives=archives, on_begun=told, on_line=log.add
                )
            except AtollError as error:
                if not begun.done():
                    begun.set_exception(error)
                log.add(BuildLine(at=time.time(), level="error", message=error.message))
            except Exception as error:
                _log.exception("a build failed")
                if not begun.done():
                    begun.set_exception(error)
            finally:
                self._tasks.pop(build_id, None)
                begun.cancel()

        self._tasks[build_id] = asyncio.create_task(work())
        await asyncio.shield(begun)

    async def end(self, build_ids: set[str]) -> None:
        """Cancel builds that go on here, and wait until nothing is left of them."""
        tasks = [task for build_id, task in self._tasks.items() if build_id in build_ids]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def lines(self, build_id: str) -> list[BuildLine]:
        """What is kept of a build's log."""
        log = self._logs.get(build_id)
        return log.lines if log is not None else []

    def _remember(self, build_id: str, log: BuildLog) -> None:
        self._logs[build_id] = log
        for oldest in list(self._logs)[: max(0, len(self._logs) - _LOGS_KEPT)]:
            if oldest not in self._tasks:
                del self._logs[oldest]
