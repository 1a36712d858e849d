"""What the cases share. They run under an E2B SDK's own interpreter, against the server that E2B_* name."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import calls
import e2b
import pytest

# Generous: the machine may be busy, and nothing here is about speed.
BOUND_S = 120


class Face:
    """One of the SDK's two faces. ``do`` gets a call's result from either."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_async = name == "async"
        self.Sandbox = e2b.AsyncSandbox if self.is_async else e2b.Sandbox
        self.Template = e2b.AsyncTemplate if self.is_async else e2b.Template
        self.Volume = e2b.AsyncVolume if self.is_async else e2b.Volume
        self.Secret = e2b.AsyncSecret if self.is_async else e2b.Secret
        self.is_old = not hasattr(e2b, "SandboxNotRunningException")

    async def do(self, value: Any) -> Any:
        """The result of a call, waited for if it must be."""
        return await value if inspect.isawaitable(value) else value

    async def until(self, fact: Callable[[], Any]) -> Any:
        """Ask until the answer is true, and return it."""
        deadline = time.monotonic() + BOUND_S
        while True:
            if answer := await self.do(fact()):
                return answer
            assert time.monotonic() < deadline, "it never became so"
            await asyncio.sleep(0.1)

    async def raises(self, kind: type[BaseException], call: Callable[[], Any]) -> BaseException:
        """The error of this kind that a call ends with."""
        with pytest.raises(kind) as caught:
            await self.do(call())
        return caught.value


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=os.environ.get("ATOLL_FACES", "sync async").split())
def face(request: pytest.FixtureRequest) -> Face:
    return Face(request.param)


@pytest.fixture
async def sandbox(face: Face, anyio_backend: str) -> AsyncIterator[Any]:
    """A sandbox of the test's own."""
    made = await face.do(face.Sandbox.create(timeout=BOUND_S * 5))
    try:
        yield made
    finally:
        await face.do(made.kill())


@pytest.fixture
async def anew(face: Face, anyio_backend: str) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """Makes sandboxes, which are killed at the end."""
    made: list[Any] = []

    async def make(*args: Any, **options: Any) -> Any:
        made.append(await face.do(face.Sandbox.create(*args, **{"timeout": BOUND_S * 5, **options})))
        return made[-1]

    yield make
    for one in made:
        await face.do(one.kill())


def pytest_sessionstart() -> None:
    calls.listen()


def pytest_sessionfinish() -> None:
    calls.write()
