"""The relay: the process that carries the traffic of guests, and decides about it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from atoll.host import LeftProgram, Program
from atoll.network.channel import Message
from atoll.network.decided import decisions_of
from atoll.network.relay_calls import CALL_S, RelayCalls, RelayError
from atoll.network.relay_talk import RelayTalk
from atoll.network.restarts import keep_running, run_earlier_or_new
from atoll.types import EgressDecision

PROTOCOL = 3
_READY_S = 10.0
_PAUSES_S = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)
_LOOK_S = 1.0
# The most messages to keep about a guest between the takeover of the relay and the guest's own: all decisions that
# the relay has kept. It repeats any further message, or that is of no use.
_MOST_EARLY = 2048
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RelayProgram:
    """The means to start the relay and to find it again.

    Args:
        argv: Returns the program and its arguments.
        socket: The path of its listener.
        started: Called with the process's pid and start time before any message to it. An OSError ends the
            process.
        earlier: Returns the relay of an earlier supervisor, which has the sockets of all links; None if none runs.
        guardian: Returns a descriptor of a process, for the caller to close. Without a supervisor, the relay
            lives as long as this process. None ends it with its supervisor.
    """

    argv: Callable[[], tuple[str, ...]]
    socket: Path
    started: Callable[[int, int], None] = lambda *_: None
    earlier: Callable[[], LeftProgram | None] = lambda: None
    guardian: Callable[[], int | None] = lambda: None


@dataclass(frozen=True)
class Given:
    """A link that the relay of an earlier supervisor carries on.

    Args:
        sockets: The listener for TCP, the socket for DNS, and the listener for DNS over TCP.
        is_held: Whether it passes no bytes.
        is_cut: Whether it allows nothing.
    """

    sockets: tuple[socket.socket, socket.socket, socket.socket]
    is_held: bool
    is_cut: bool


class Carried(Protocol):
    """A guest that the relay carries."""

    def introduce(self) -> None:
        """Tell a relay that has just started everything about it.

        Raises:
            OSError: The relay is gone again.
        """

    def heard(self, message: Message) -> None:
        """Handle the relay's message about it."""


class Relay:
    """Runs the relay of a home. While it does not run, nothing passes, and connections wait to be accepted.

    It tells every new relay about all guests, which keep their own wanted state. It takes over an earlier
    supervisor's relay and its connections, if that speaks the same protocol.

    Args:
        program: The means to start it.
        settings: Returns its settings for this host.

    Attributes:
        pid: The process; None while it does not run.
        pair: The name of its channel to the edge; empty if it has none.
        on_apart: Called when the relay is ready without a channel to the edge, and again each second.
        stray: Called with decisions about a link that has no guest any more, and its id.
    """

    def __init__(self, program: RelayProgram, settings: Callable[[], Message]) -> None:
        self._program = program
        self._settings = settings
        self._guests: dict[str, Carried] = {}
        # Links that it carries and no guest of this supervisor has claimed, with its messages about them.
        self._unclaimed: dict[str, list[Message]] = {}
        self._early: list[Message] = []  # messages that came before the list of its links
        self._calls: RelayCalls | None = None
        self._talk: RelayTalk | None = None
        self._running: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._stuck = asyncio.Event()
        self._known: Message | None = None
        self._stays = False
        self.pid: int | None = None
        self.pair = ""
        self.on_apart: Callable[[], None] = lambda: None
        self.stray: Callable[[str, Sequence[EgressDecision]], None] = lambda *_: None

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

    async def aclose(self, *, stay: bool = False) -> None:
        """End the relay, which resets its connections. With ``stay`` leave it to the next supervisor."""
        self._stays = stay
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def enter(self, link_id: str, guest: Carried) -> None:
        """Carry a guest from now on. The relay may carry it already, after ``give``.

        Raises:
            OSError: This process or the relay lacks descriptors or memory; the guest is not carried.
        """
        self._guests[link_id] = guest
        if not self._ready.is_set() or link_id in self._unclaimed:
            return
        try:
            guest.introduce()
        except (ConnectionError, TimeoutError):
            pass  # the next relay hears everything
        except OSError:
            self.leave(link_id)
            raise

    def leave(self, link_id: str, *, stay: bool = False) -> None:
        """Stop carrying a guest, which resets its connections. ``stay`` only forgets it here. Idempotent."""
        if self._guests.pop(link_id, None) is not None and not stay:
            with contextlib.suppress(OSError):
                self.call({"op": "unlink", "link": link_id})

    def carries(self, link_id: str) -> bool:
        """Whether it carries an earlier supervisor's link that no guest has claimed."""
        return link_id in self._unclaimed

    def give(self, link_id: str) -> Given | None:
        """Return a link that an earlier supervisor's relay carries on, for ``enter``; None if it does not."""
        if self._calls is None or not self.carries(link_id):
            return None
        try:
            answer, fds = self._calls.call({"op": "give", "link": link_id})
        except OSError as error:
            _log.warning("the relay does not give the link %s back: %s", link_id, error)
            return None
        return _given(answer, [socket.socket(fileno=fd) for fd in fds])

    def claim(self, link_id: str) -> list[Message]:
        """Return the relay's messages about a claimed link, now that somebody hears them."""
        return self._unclaimed.pop(link_id, [])

    def forget_others(self) -> None:
        """Drop an earlier supervisor's links that no guest has claimed. Call this when all are adopted."""
        for link_id in self._unclaimed.keys() - self._guests.keys():
            for message in self._unclaimed.pop(link_id):
                self._strayed(link_id, message)
            with contextlib.suppress(OSError):
                self.call({"op": "unlink", "link": link_id})

    def call(self, message: Message, *, document: object = None, fds: Sequence[int] = ()) -> Message:
        """Have the relay do something, and return its answer. Blocks for a moment.

        Args:
            message: The request.
            document: Data too large for a message.
            fds: Descriptors to send copies of.

        Raises:
            RelayError: The relay refuses.
            OSError: The relay does not run. The next one hears everything about each guest.
        """
        if self._calls is None:
            raise ConnectionError("the relay does not run")
        answer, received = self._calls.call(message, document=document, fds=fds)
        for fd in received:
            os.close(fd)
        return answer

    async def ask(self, message: Message) -> Message:
        """Ask the relay for something that takes it a while.

        Raises:
            RelayError: The relay refuses, or cannot.
            OSError: The relay does not run.
            TimeoutError: The relay does not answer in time.
        """
        if self._talk is None:
            raise ConnectionError("the relay does not run")
        return await self._talk.ask(message)

    async def hear(self) -> None:
        """Hear all that was decided until now. Otherwise it may take a moment."""
        with contextlib.suppress(OSError, TimeoutError):  # then nobody knows more
            async with asyncio.timeout(CALL_S):
                await self.ask({"op": "tell"})

    def send(self, message: Message, fd: int | None = None) -> None:
        """Tell it something, with a descriptor that this closes. A message may be lost with the relay."""
        if self._talk is not None:
            self._talk.send(message, fd)
        elif fd is not None:
            os.close(fd)

    def settle(self) -> None:
        """Tell it about changes of this host. This also happens by itself every second.

        Raises:
            OSError: The relay does not run.
        """
        settings = self._settings()
        if settings != self._known:
            self.call({"op": "settings"}, document=settings)
            self._known = settings

    def be_guarded(self) -> None:
        """Have it stay without a supervisor as long as the guardian of now runs.

        Raises:
            OSError: The relay does not run.
        """
        guardian = self._program.guardian()
        if guardian is not None:
            try:
                self.call({"op": "stay"}, fds=(guardian,))
            finally:
                os.close(guardian)

    async def _run_once(self) -> None:
        self._stuck.clear()
        await run_earlier_or_new(self._program, self._run, stays=lambda: self._stays)

    async def _run(self, program: Program | LeftProgram, is_new: bool) -> None:
        try:
            self.pid = program.pid
            self._talk = RelayTalk(self._program.socket, self._on_message, self._stuck.set)
            await self._greet(is_new=is_new)
            await self._serve(program)
        finally:
            self._end()

    def _on_lost(self) -> None:
        """Another one takes its place."""
        self._ready.clear()
        self._stuck.set()

    async def _greet(self, *, is_new: bool) -> None:
        async with asyncio.timeout(CALL_S):
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
        confined = ", ".join(answer.get("confined") or ()) or "nothing"
        _log.info("the relay %s, confined by %s", "runs" if is_new else "is taken over", confined)
        self.pair = str(answer.get("pair", ""))
        self._known = None
        # From here to the end nothing else goes on: a relay that is called knows all guests, or takes the calls
        # of each with it.
        self._calls = RelayCalls(self._program.socket, self._on_lost)
        self.settle()
        self.be_guarded()
        self._unclaimed = {link_id: [] for link_id in answer.get("links") or ()}
        for link_id, guest in list(self._guests.items()):
            if self._unclaimed.pop(link_id, None) is not None:
                self.call({"op": "unlink", "link": link_id})  # the guest has made its sockets again
            try:
                guest.introduce()
            except RelayError as error:
                _log.error("the relay does not carry link %s: %s", link_id, error)
        self._ready.set()
        for message in self._early:
            self._pass_on(message["link"], message)
        self._early.clear()
        self.on_apart()

    async def _serve(self, program: Program | LeftProgram) -> None:
        dying = asyncio.ensure_future(program.wait())
        stuck = asyncio.ensure_future(self._stuck.wait())
        try:
            while not (dying.done() or stuck.done()):
                await asyncio.wait({dying, stuck}, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                if not stuck.done():
                    self.settle()
                    if not self.pair:
                        self.on_apart()
            _log.warning("the relay ended; the connections of all guests are reset")
        finally:
            for task in (dying, stuck):
                task.cancel()

    def _end(self) -> None:
        self._ready.clear()
        if self._talk is not None:
            self._talk.close()
            self._talk = None
        if self._calls is not None:
            self._calls.close()
            self._calls = None
        self.pid = None
        self._unclaimed = {}
        self._early.clear()

    def _on_message(self, message: Message) -> None:
        try:
            self._handle(message)
        except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
            _log.error("the relay sent a message that means nothing: %r", error)

    def _handle(self, message: Message) -> None:
        op = message["op"]
        if op == "parted":
            if message["pair"] == self.pair:  # unless another pair has followed this one
                self.pair = ""
        elif op == "log":
            _log.warning("the relay: %s", str(message["text"])[:1000])
        else:
            link_id = message["link"]
            if self._ready.is_set():
                self._pass_on(link_id, message)
            else:
                self._early.append(message)

    def _pass_on(self, link_id: str, message: Message) -> None:
        early = self._unclaimed.get(link_id)
        if early is None:
            guest = self._guests.get(link_id)
            if guest is not None:
                guest.heard(message)
            else:
                self._strayed(link_id, message)
        elif len(early) < _MOST_EARLY:
            early.append(message)

    def _strayed(self, link_id: str, message: Message) -> None:
        if message["op"] == "told":
            self.stray(link_id, decisions_of(message))


def _given(answer: Message, sockets: list[socket.socket]) -> Given | None:
    try:
        tcp, dns, dns_stream = sockets
        content = answer["content"]
        return Given((tcp, dns, dns_stream), bool(content["held"]), bool(content["cut"]))
    except (KeyError, TypeError, ValueError) as error:
        _log.error("the relay gives a link back in a way that means nothing: %r", error)
        for each in sockets:
            each.close()
        return None
