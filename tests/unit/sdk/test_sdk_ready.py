"""Waiting until the program of a template is ready."""

from __future__ import annotations

import time
from typing import Any

import anyio
import pytest

from atoll.errors import TemplateBuildError
from atoll.sdk._async.start_command import started_command
from atoll.types import ExecResult


class Checks:
    """A sandbox whose ready command ends with these exit codes, the last one for ever."""

    def __init__(self, *codes: int, said: bytes = b"first\nconnection refused\n") -> None:
        self._codes = list(codes)
        self._said = said

    async def run(self, _command: str, **_: Any) -> ExecResult:
        code = self._codes.pop(0) if len(self._codes) > 1 else self._codes[0]
        return ExecResult(exit_code=code, stdout_bytes=b"", stderr_bytes=self._said)


def told(sandbox: Checks, *, left_s: float = 60.0) -> list[str]:
    messages: list[str] = []

    async def say(message: str) -> None:
        messages.append(message)

    async def wait() -> None:
        ready = "curl -sf localhost:8000"
        end_at = time.monotonic() + left_s
        await started_command(sandbox, "", ready, cwd="/", end_at=end_at, say=say, tell_s=0.0)  # type: ignore[arg-type]

    anyio.run(wait)
    return messages


def test_the_wait_tells_what_the_check_said_last() -> None:
    messages = told(Checks(7, 0))
    assert messages == [
        "not ready after 0 s; the last of its output: connection refused",
        "the template's program is ready",
    ]


def test_a_check_that_says_nothing_is_told_by_its_exit_code() -> None:
    assert "it exits with 7 and writes nothing" in told(Checks(7, 0, said=b""))[0]


def test_the_end_of_the_wait_names_the_check_and_what_it_said_last() -> None:
    with pytest.raises(TemplateBuildError) as raised:
        told(Checks(7), left_s=0.0)
    assert "curl -sf localhost:8000; the last of its output: connection refused" in raised.value.message
