"""The relay: the process that carries what guests send and receive, and decides about it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from atoll.host import Program, start_program
from atoll.network.channel import Channel, Message, in_memory, read_document
from atoll.network.restarts import keep_running
from atoll.types import from_json

PROTOCOL = 1
# It answers within a millisecond. One that does not is stuck, and another one takes its place.
_CALL_S = 5.0
_ASK_S = 30.0
_READY_S = 10.0
_PAUSES_S = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)
_LOOK_S = 1.0
_BACKLOG = 16
_LONGEST_BYTES = 64 << 10
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RelayProgram:
    """How the relay is started.

    Args:
        argv: Returns the program and its arguments.
        socket: Where it listens.
        started: Called with the process's pid and start time before it is told anything. An OSError ends it.
        end_earlier: Ends the relay of an earlier supervisor, which has the sockets of all links.
    """

    argv: Callable[[], tuple[str, ...]]
    socket: Path
    started: Callable[[int, int], None] = lambda *_: None
    end_earlier: Callable[[], None] = lambda: None


class Carried(Protocol):
    """A guest that the relay carries."""

    def introduce(self) -> None:
        """Tell a relay that has just started everything about it.

        Raises:
            OSError: The relay is gone again.
        """

    def heard(self, message: Message) -> None:
        """Do what the relay says about it."""


class RelayError(OSError):
    """The relay refuses what it was asked for."""


class Relay:
    """Runs the relay of a home. While it does not run, nothing passes, and connections wait to be accepted.

    Its guests are told to every new one. What they are meant to be they keep themselves.

    Args:
        program: How it is started.
        settings: Returns what it must know of this host.

    Attributes:
        pid: The process; None while it does not run.
        on_ready: Called whenever it is ready.
    """

    def __init__(self, program: RelayProgram, settings: Callable[[], Message]) -> None:
        self._program = program
        self._settings = settings
        self._guests: dict[str, Carried] = {}
        self._ids = itertools.count(1)
        self._calls: socket.socket | None = None
        self._channel: Channel | None = None
        self._asked: dict[int, asyncio.Future[Message]] = {}
        self._running: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._stuck = asyncio.Event()
        self._known: Message | None = None
        self.pid: int | None = None
        self.on_ready: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Start it, and return when it is ready. Idempotent.

        Raises:
            OSError: It does not start. Attempts go on.
        """
        if self._running is None:
            self._running = asyncio.create_task(keep_running("the relay", self._run_once, _PAUSES_S))
        try:
            async with asyncio.timeout(_READY_S):
                await self._ready.wait()
        except TimeoutError:
            raise OSError("the relay does not start: see the supervisor's log") from None

    async def aclose(self) -> None:
        """End it. Its connections are reset."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def enter(self, link_id: str, guest: Carried) -> None:
        """Carry a guest from now on.

        Raises:
            OSError: This process or the relay lacks descriptors or memory; the guest is not carried.
        """
        self._guests[link_id] = guest
        if not self._ready.is_set():
            return
        try:
            guest.introduce()
        except (ConnectionError, TimeoutError):
            pass  # the next one is told all
        except OSError:
            self.leave(link_id)
            raise

    def leave(self, link_id: str) -> None:
        """Carry a guest no more. Its connections are reset. Idempotent."""
        if self._guests.pop(link_id, None) is not None:
            with contextlib.suppress(OSError):
                self.call({"op": "unlink", "link": link_id})

    def call(self, message: Message, *, document: object = None, fds: Sequence[int] = ()) -> Message:
        """Have the relay do something, and return its answer. It takes a moment, in which nothing else goes on.

        Args:
            message: What it shall do.
            document: What does not fit into a message.
            fds: Descriptors that it gets copies of.

        Raises:
            RelayError: It refuses.
            OSError: It does not run. The next one is told everything of each guest.
        """
        if self._calls is None:
            raise ConnectionError("the relay does not run")
        content = None if document is None else in_memory(document)
        try:
            passed = [*fds, *(() if content is None else (content,))]
            data = msgspec.json.encode({**message, "id": next(self._ids)})
            socket.send_fds(self._calls, [data], passed)
            data, received, _, _ = socket.recv_fds(self._calls, _LONGEST_BYTES + 1, 1)
        except OSError:
            self._give_up()
            raise
        finally:
            if content is not None:
                os.close(content)
        return self._answer(data, received)

    async def ask(self, message: Message) -> Message:
        """Ask the relay for something that takes it a while.

        Raises:
            RelayError: It refuses, or cannot.
            OSError: It does not run.
            TimeoutError: It does not answer in time.
        """
        if self._channel is None:
            raise ConnectionError("the relay does not run")
        number = next(self._ids)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            self._channel.send({**message, "id": number})
            async with asyncio.timeout(_ASK_S):
                return _checked(await answer)
        finally:
            self._asked.pop(number, None)

    async def hear(self) -> None:
        """Hear all that was decided until now. Otherwise it may take a moment."""
        with contextlib.suppress(OSError, TimeoutError):  # then nobody knows more
            async with asyncio.timeout(_CALL_S):
                await self.ask({"op": "tell"})

    def send(self, message: Message, fd: int | None = None) -> None:
        """Tell it something, with a descriptor that is closed here. What does not get there, ended with it."""
        if self._channel is None:
            if fd is not None:
                os.close(fd)
            return
        with contextlib.suppress(OSError):
            self._channel.send(message, fd)

    def _answer(self, data: bytes, fds: list[int]) -> Message:
        if not data:
            self._give_up()
            raise ConnectionError("the relay ended")
        try:
            answer = from_json(data)
            if fds:
                answer["content"] = read_document(fds.pop())
        except (ValueError, TypeError) as error:
            self._give_up()
            raise ConnectionError(f"the relay answers what means nothing: {error}") from None
        finally:
            for fd in fds:
                os.close(fd)
        return _checked(answer)

    def _give_up(self) -> None:
        """Another one takes its place: it is gone, or will not answer any more."""
        if self._calls is not None:
            self._calls.close()
            self._calls = None
        self._ready.clear()
        self._stuck.set()

    async def _run_once(self) -> None:
        self._stuck.clear()
        await asyncio.to_thread(self._program.end_earlier)
        listener = _listener(self._program.socket)
        with listener:
            fd = listener.fileno()
            program = start_program((*self._program.argv(), "-listen", str(fd)), pass_fds=(fd,), env={})
        try:
            self.pid = program.pid
            self._program.started(program.pid, program.start_ticks)
            self._connect()
            await self._greet()
            await self._serve(program)
        finally:
            await self._end(program)

    def _connect(self) -> None:
        ours = _connected(self._program.socket)
        self._channel = Channel(ours, self._on_message, self._stuck.set)
        self._calls = _connected(self._program.socket)
        self._calls.settimeout(_CALL_S)

    async def _greet(self) -> None:
        async with asyncio.timeout(_READY_S):
            hello = asyncio.ensure_future(self.ask({"op": "hello", "protocol": PROTOCOL}))
            stuck = asyncio.ensure_future(self._stuck.wait())
            try:
                await asyncio.wait({hello, stuck}, return_when=asyncio.FIRST_COMPLETED)
                if not hello.done():
                    raise OSError("it ended before it was ready")
                answer = hello.result()["content"]
            finally:
                hello.cancel()
                stuck.cancel()
        _log.info("the relay runs, confined by %s", ", ".join(answer.get("confined", ())) or "nothing")
        self._known = None
        self.settle()
        for link_id, guest in list(self._guests.items()):
            try:
                guest.introduce()
            except RelayError as error:
                _log.error("the relay does not carry link %s: %s", link_id, error)
        self._ready.set()
        self.on_ready()

    def settle(self) -> None:
        """Tell it what has changed on this host. It does so by itself every second.

        Raises:
            OSError: It does not run.
        """
        settings = self._settings()
        if settings != self._known:
            self.call({"op": "settings"}, document=settings)
            self._known = settings

    async def _serve(self, program: Program) -> None:
        dying = asyncio.ensure_future(program.wait())
        stuck = asyncio.ensure_future(self._stuck.wait())
        try:
            while not (dying.done() or stuck.done()):
                await asyncio.wait({dying, stuck}, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                self.settle()
            _log.warning("the relay ended; the connections of all guests are reset")
        finally:
            for task in (dying, stuck):
                task.cancel()

    async def _end(self, program: Program) -> None:
        self._ready.clear()
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(ConnectionError("the relay ended"))
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._calls is not None:
            self._calls.close()
            self._calls = None
        self.pid = None
        await program.kill()
        self._program.socket.unlink(missing_ok=True)

    def _on_message(self, message: Message) -> None:
        try:
            self._handle(message)
        except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
            _log.error("the relay sent a message that means nothing: %r", error)

    def _handle(self, message: Message) -> None:
        op = message["op"]
        if op == "answer":
            answer = self._asked.get(message["id"])
            if answer is not None and not answer.done():
                answer.set_result(message)
        elif op == "log":
            _log.warning("the relay: %s", str(message["text"])[:1000])
        else:
            guest = self._guests.get(message["link"])
            if guest is not None:
                guest.heard(message)


def cut_at(path: Path, link_id: str) -> None:
    """Have a relay pass nothing of a guest any more, without its supervisor. When it returns, the last byte has passed.

    Args:
        path: Where the relay listens.

    Raises:
        OSError: It does not run, does not answer, or refuses.
    """
    with _connected(path) as calls:
        calls.settimeout(_CALL_S)
        calls.send(msgspec.json.encode({"op": "cut", "link": link_id, "id": 1}))
        data = calls.recv(_LONGEST_BYTES)
        if not data:
            raise ConnectionError("the relay ended")
        _checked(from_json(data))


def _checked(answer: Message) -> Message:
    if error := answer.get("error"):
        raise RelayError(str(error)[:1000])
    return answer


def _listener(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with _short(path) as short:
            listener.bind(short)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _connected(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with _short(path) as short:
            made.connect(short)
    except BaseException:
        made.close()
        raise
    return made


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """A path of a socket that is short enough for the kernel, wherever it lies."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
