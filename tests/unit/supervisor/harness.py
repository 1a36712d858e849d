"""A whole supervisor on fakes: engine, links, disks, images and guest agents live in this process."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec

from atoll.engines import DEFAULT_ENGINE, Prestarting
from atoll.host import Home, remove_tree
from atoll.supervisor.assembly import Rooms
from atoll.supervisor.routes import make_api
from atoll.supervisor.settings import Settings
from atoll.supervisor.state.clock import Clock
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.stopping import Stopping
from atoll.supervisor.storage.binaries import Programs
from atoll.supervisor.system import System
from atoll.testing import CAPABILITIES, FakeCoreEngine, FakeEngine, FakeHost, FakeMachine, fake_engine
from tests.unit.supervisor.fakes import (
    FakeAgents,
    FakeImageRoots,
    FakeImages,
    FakeLayers,
    FakeLinks,
    FakeRelay,
)

PATIENCE_S = 60


class Answer(msgspec.Struct):
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Harness:
    """One home, one host, and as many supervisors after each other as a test wants."""

    def __init__(
        self, path: Path, settings: Settings, *, complete: bool = False, prestarted_machines: bool = False
    ) -> None:
        self.complete = complete
        self.engine_name = DEFAULT_ENGINE
        self.engine_types: dict[str, type[FakeCoreEngine]] = {
            DEFAULT_ENGINE: FakeEngine if prestarted_machines else fake_engine(CAPABILITIES - {Prestarting})
        }
        self.home = Home(path)
        self.home.make()
        # Its sandboxes use none of the host's memory, of which others may have left little.
        is_open = settings.host_memory_free_mib is None
        self.settings = msgspec.structs.replace(settings, host_memory_free_mib=0.0) if is_open else settings
        self.host = FakeHost()
        self.links = FakeLinks()
        self.layers = FakeLayers(self.home.layers)
        self.images = FakeImages(self.home.images)
        self.agents = FakeAgents()
        self.now_s = 1000.0
        self.boot_s = 100.0
        self.boot = "first"
        for name in ("runsc", "atoll-agent"):
            (path / name).write_text(name)

    async def start(self) -> None:
        rooms = Rooms(
            engine=lambda versions: self.engine_types[versions.engine_name](self.host),
            engine_type=self.engine_types.__getitem__,
            programs=Programs(
                self.home.bin,
                self.home.path / "runsc",
                self.home.path / "atoll-agent",
                engine_name=self.engine_name,
            ),
            images=cast(Any, self.images),
            layers=cast(Any, self.layers),
            image_roots=cast(Any, FakeImageRoots()),
            relay=cast(Any, FakeRelay()),
            links=cast(Any, self.links),
            cgroups=None,
            nameserver="192.0.2.53",
            complete=self.complete,
            agents=cast(Any, self.agents),
        )
        self.system = System(
            self.home,
            self.settings,
            rooms,
            clock=Clock(self._tick, lambda: self.boot_s, self.boot, lambda: self.boot_s),
        )
        self.stopping = Stopping()
        self.app = make_api(self.system, self.stopping)
        await self.system.start()

    async def crash(self) -> None:
        """Let the supervisor die as kill -9 does: nothing is tidied; guests go on."""
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)
        await self.system.dial_socket.aclose()
        await self.system.database.aclose()
        self.system.acts.log.close()

    async def aclose(self) -> None:
        await self.system.aclose()

    async def ask(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Answer:
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
            "server": ("unix", None),
            "scheme": "http",
        }
        inbox = [{"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}]
        answer = Answer(0, b"")

        async def receive() -> dict[str, Any]:
            if inbox:
                return inbox.pop()
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
            else:
                answer.body += message.get("body", b"")

        await self.app(scope, receive, send)
        return answer

    async def create(self, **spec: object) -> Any:
        answer = await self.ask("POST", "/v1/sandboxes", spec)
        assert answer.status == 200, answer.body
        return answer.json

    async def asleep(self, made: Any) -> None:
        """Suspend a sandbox, and wait until nothing is left to be done for it."""
        sandbox = self.system.inventory.sandbox(made["sandbox_id"])
        assert (await self.ask("POST", f"/v1/sandboxes/{sandbox.sandbox_id}/suspend")).status == 200
        async with sandbox.lock:
            pass

    async def pause_as_idle(self, made: Any) -> Sandbox:
        """Pause a sandbox as one that was found to be idle."""
        sandbox = self.system.inventory.sandbox(made["sandbox_id"])
        async with sandbox.lock:
            await self.system.pauses.pause_locked(sandbox, "idle")
        return sandbox

    def machine_of(self, sandbox_id: str) -> FakeMachine:
        running = self.system.inventory.sandbox(sandbox_id).running
        assert running is not None
        machine = running.machine
        assert isinstance(machine, FakeMachine)
        return machine

    async def until(self, true: Callable[[], object]) -> None:
        """Let the supervisor work until something is so."""
        async with asyncio.timeout(PATIENCE_S):
            while not true():  # noqa: ASYNC110 - anything may be waited for
                await asyncio.sleep(0.005)

    def _tick(self) -> float:
        self.now_s += 0.001
        return self.now_s


@contextmanager
def _short_directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="sv-"))  # a socket lies in it, so its path must be short
    try:
        yield path
    finally:
        remove_tree(path)


def with_harness(test: Callable[[Harness], Any]) -> Callable[[], None]:
    """Run an asynchronous test with a harness whose supervisor has been started, without a pool."""
    return with_harness_of(Settings(pool_size=0, idle_suspend_s=0))(test)


def with_harness_of(
    settings: Settings, *, complete: bool = False, prestarted_machines: bool = False
) -> Callable[[Callable[[Harness], Any]], Callable[[], None]]:
    def decorate(test: Callable[[Harness], Any]) -> Callable[[], None]:
        @functools.wraps(test)
        def run() -> None:
            with _short_directory() as path:
                asyncio.run(
                    _lived(
                        test,
                        Harness(path, settings, complete=complete, prestarted_machines=prestarted_machines),
                    )
                )

        run.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
        return run

    return decorate


async def _lived(test: Callable[[Harness], Any], harness: Harness) -> None:
    await harness.start()
    try:
        async with asyncio.timeout(PATIENCE_S * 2):
            await test(harness)
    finally:
        await harness.aclose()
