"""The sentry's control socket, spoken to a sentry made of Python."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from pathlib import Path

import msgspec
import pytest

from atoll.engines import VolumeUse
from atoll.engines.gvisor import control
from atoll.engines.gvisor.control import (
    ControlSocket,
    PendingCallError,
    RefusedCallError,
)
from atoll.engines.gvisor.pausing import PausingControl
from atoll.engines.gvisor.volume_budgets import GvisorVolumeBudgets
from atoll.errors import EngineError, UnresponsiveError


class Sentry:
    """Answers one call with ``answer``, in pieces, and keeps what it was asked."""

    def __init__(self, path: Path, answer: bytes) -> None:
        self.request: dict[str, object] = {}
        self.received = b""
        self._answer = answer
        self._server = socket.socket(socket.AF_UNIX)
        directory = os.open(path.parent, os.O_PATH)
        self._server.bind(f"/proc/self/fd/{directory}/{path.name}")
        os.close(directory)
        self._server.listen()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Sentry:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._server.close()

    def _serve(self) -> None:
        connection, _ = self._server.accept()
        with connection:
            data, fds, _, _ = socket.recv_fds(connection, 65536, 8)
            self.request = msgspec.json.decode(data)
            for fd in fds:
                self.received += os.pread(fd, 100, 0)
                os.close(fd)
            for index in range(len(self._answer)):
                connection.sendall(self._answer[index : index + 1])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    return long / "control.sock"


def test_a_call_below_a_long_path_passes_files_and_returns_the_result(path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with (
        Sentry(path, b'{"success":true,"err":"","result":{"a":[1]}}') as sentry,
        open(tmp_path / "file") as file,
    ):
        result = asyncio.run(ControlSocket(path).call("M.Do", {"x": 1}, fds=[file.fileno()]))
    assert result == {"a": [1]}
    assert sentry.request == {"method": "M.Do", "arg": {"x": 1}}
    assert sentry.received == b"content"


def test_a_refused_call_raises_with_the_sentrys_words(path: Path) -> None:
    with Sentry(path, b'{"success":false,"err":"no space","result":null}'):
        with pytest.raises(EngineError, match="no space"):
            asyncio.run(ControlSocket(path).call("M.Do"))


@pytest.mark.parametrize("answer", [b"", b'{"success":tr'])
def test_a_sentry_that_dies_during_a_call_is_an_error_at_once(path: Path, answer: bytes) -> None:
    with Sentry(path, answer):
        with pytest.raises(EngineError, match="does not answer"):
            asyncio.run(ControlSocket(path).call("M.Do"))


def test_a_call_to_a_dead_sentry_is_an_error(path: Path) -> None:
    with pytest.raises(EngineError, match="does not answer"):
        asyncio.run(ControlSocket(path).call("M.Do"))


async def used(path: Path, answer: bytes) -> dict[str, VolumeUse]:
    with Sentry(path, answer):
        machine = GvisorVolumeBudgets()
        machine._control = PausingControl(path, None)
        return await machine.measure_volumes(["/data"])


def test_what_a_guest_does_to_a_volume_is_read_within_bounds(path: Path) -> None:
    told = {"Rest": -4096, "Needed": 1 << 60, "Nameless": 0}
    answer = msgspec.json.encode({"success": True, "result": {"/data": told}})
    assert asyncio.run(used(path, answer)) == {"/data": VolumeUse(-4096, 1 << 60, 0)}


@pytest.mark.parametrize("wrong", ['{"Rest":1e70}', '{"Nameless":-1}', '{"Needed":true}', "[]"])
def test_a_use_of_volumes_that_cannot_be_is_refused(path: Path, wrong: str) -> None:
    told = {"Rest": 0, "Needed": 0, "Nameless": 0}
    more = msgspec.json.decode(wrong)
    result = {"/data": {**told, **more} if isinstance(more, dict) else more}
    with pytest.raises(EngineError, match="of volumes"):
        asyncio.run(used(path, msgspec.json.encode({"success": True, "result": result})))


def test_a_call_that_the_sentry_refuses_is_told_from_one_that_it_does_not_answer(path: Path) -> None:
    with Sentry(path, b'{"success":false,"err":"no"}'):
        with pytest.raises(RefusedCallError, match="no"):
            asyncio.run(ControlSocket(path).call("containerManager.MeasureVolumes"))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "LOOK_S", 0.01)
    monkeypatch.setattr(control, "ANSWER_S", 0.1)


class HungSentry(Sentry):
    """Answers pings if it is to, and nothing else."""

    def __init__(self, path: Path, *, pings: bool) -> None:
        super().__init__(path, b'{"success":false,"err":"unknown method"}')
        self._pings = pings

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        super().__exit__()

    def _serve(self) -> None:
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                held.enter_context(connection)
                if self._pings and b"Ping" in connection.recv(1000):
                    connection.sendall(self._answer)


def test_a_sentry_that_answers_nothing_ends_a_call_long_before_its_time(path: Path, impatient: None) -> None:
    with HungSentry(path, pings=False), pytest.raises(UnresponsiveError, match="ping") as raised:
        asyncio.run(ControlSocket(path).call("M.Do"))
    assert type(raised.value) is UnresponsiveError


def test_a_sentry_that_answers_pings_has_the_whole_time(path: Path, impatient: None) -> None:
    with HungSentry(path, pings=True), pytest.raises(PendingCallError, match="M.Do"):
        asyncio.run(ControlSocket(path).call("M.Do", timeout_s=0.5))
