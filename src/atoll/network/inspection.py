"""The edge: the process that opens TLS, judges requests and puts secrets into them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from atoll.errors import EdgeError
from atoll.host import Program, start_program
from atoll.network.carried import CarriedGuest
from atoll.network.channel import Channel, Message
from atoll.network.relay import Relay
from atoll.network.restarts import keep_running
from atoll.network.spending import Spending, Spent
from atoll.policy import spelled_out
from atoll.types import EgressDecision, EgressVerdict, Policy, converted

PROTOCOL = 1
_READY_S = 10.0
_JUDGE_S = 10.0
# It is back within two seconds after it died, and does not spin when it cannot start.
_PAUSES_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EdgeProgram:
    """How the edge is started, and what it must know first.

    Args:
        argv: Returns the program and its arguments.
        config: Returns the authority's certificate and key, and the certificates that verify servers, as PEM.
        started: Called with the process's pid and start time before it is told anything. An OSError ends it.
    """

    argv: Callable[[], tuple[str, ...]]
    config: Callable[[], Mapping[str, str]]
    started: Callable[[int, int], None] = lambda *_: None


@dataclass
class Inspected:
    """A sandbox whose requests are judged.

    Args:
        sandbox_id: Its id.
        guest: What the relay carries of it, which hears of decisions.
    """

    sandbox_id: str
    guest: CarriedGuest
    version: int = 0
    grant: Grant | None = None


@dataclass(frozen=True)
class Grant:
    """What the edge is told of a sandbox.

    Args:
        policy: The rules.
        secrets: The values of the secrets that the rules put into requests, by name.
        bound: The names and patterns of the hosts that alone may get a secret, by its name. One that is not
            here may go wherever a rule sends it.
        canaries: Values that a sandbox can only have stolen: one in a request unplugs it.
        ceiling: The rules of the sandbox's team, which judge too; None if it has none.
    """

    policy: Policy
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    canaries: tuple[str, ...] = field(default=(), repr=False)
    bound: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ceiling: Policy | None = None

    def document(self) -> dict[str, Any]:
        """As the edge reads it."""
        return {
            **spelled_out(self.policy),
            "secrets": dict(self.secrets),
            "bound": {name: list(hosts) for name, hosts in self.bound.items()},
            "canaries": list(self.canaries),
            "ceiling": None if self.ceiling is None else spelled_out(self.ceiling),
        }


class Inspection:
    """Runs the edge while a sandbox needs it. Nothing passes that needs it while it does not run.

    Args:
        program: How it is started.
    """

    def __init__(self, program: EdgeProgram, relay: Relay) -> None:
        self._program = program
        self._relay = relay
        relay.on_apart = self._join
        self._inspected: dict[str, Inspected] = {}
        self._spending: dict[str, Spending] = {}
        self._channel: Channel | None = None
        self._running: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._ids = itertools.count(1)
        self._judging: dict[int, asyncio.Future[Message]] = {}

    async def aclose(self) -> None:
        """End the process."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def inspect(self, wanted: Inspected, grant: Grant) -> int:
        """Judge the requests of a sandbox by a policy from now on, also those on open connections.

        Returns:
            The version of the policy, which the relay has to know.
        """
        known = self._inspected.get(wanted.sandbox_id)
        if known is not None and known.guest is wanted.guest and known.grant == grant:
            return known.version
        wanted.version = self._spending.setdefault(wanted.sandbox_id, Spending()).keep(grant.policy)
        wanted.grant = grant
        self._inspected[wanted.sandbox_id] = wanted
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(
                keep_running("the edge", self._run_once, _PAUSES_S)
            )
        elif self._ready.is_set():
            self._push(wanted)
        return wanted.version

    def forget(self, sandbox_id: str, guest: CarriedGuest) -> None:
        """Drop the policy, secrets and connections of a sandbox, unless another guest has become its own."""
        known = self._inspected.get(sandbox_id)
        if known is not None and known.guest is guest:
            del self._inspected[sandbox_id]
            self._tell({"op": "forget", "sandbox": sandbox_id})

    def erase(self, sandbox_id: str) -> None:
        """Drop what was counted for a sandbox, which is gone for ever."""
        self._spending.pop(sandbox_id, None)

    async def judge(
        self, grant: Grant | None, destination: Mapping[str, Any], request: Mapping[str, Any]
    ) -> EgressVerdict | None:
        """Return what a request would get; None if the name of its destination has to be resolved first.

        Args:
            grant: What the edge would be told of the sandbox; None is everything public, without rules.
            destination: Its name, port, and the addresses that are known, as the edge reads them.
            request: The request, likewise.

        Raises:
            EdgeError: The edge does not run, or does not answer.
        """
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(
                keep_running("the edge", self._run_once, _PAUSES_S)
            )
        number = next(self._ids)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._judging[number] = answer
        try:
            async with asyncio.timeout(_JUDGE_S):
                await self._ready.wait()
                document = {
                    "policy": None if grant is None else grant.document(),
                    "destination": destination,
                    "request": request,
                }
                self._require().send_document({"op": "judge", "id": number}, document)
                judged = await answer
                return None if judged.get("resolve") else converted(judged, EgressVerdict, strict=False)
        except (OSError, TimeoutError, msgspec.ValidationError) as error:
            raise EdgeError(f"the process that judges requests gives no answer: {error}") from error
        finally:
            self._judging.pop(number, None)

    def _require(self) -> Channel:
        if self._channel is None or not self._ready.is_set():
            raise OSError("the process that judges requests does not run")
        return self._channel

    def _tell(self, message: Message) -> None:
        # A message that does not get there concerns connections that end with the process.
        with contextlib.suppress(OSError):
            self._require().send(message)

    def _join(self) -> None:
        """Give the relay and the edge a channel of their own."""
        if self._channel is None or not self._ready.is_set():
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._relay.pair = secrets.token_hex(8)
        self._relay.send({"op": "edge", "pair": self._relay.pair}, ours.detach())
        fd = theirs.detach()
        with contextlib.suppress(OSError):  # it has ended, and the next one is joined
            self._require().send({"op": "relay"}, fd)

    def _push(self, inspected: Inspected) -> None:
        message = {"op": "policy", "sandbox": inspected.sandbox_id, "version": inspected.version}
        document = inspected.grant.document() if inspected.grant else {}
        document["spent"] = self._spending[inspected.sandbox_id].document()
        try:
            self._require().send_document(message, document)
        except OSError as error:
            # It would judge by the policy of before: better that it ends.
            _log.error("the edge takes no policy: %s", error)
            self._end_channel()

    async def _run_once(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                fd = theirs.fileno()
                argv = (*self._program.argv(), "--channel", str(fd))
                program = start_program(argv, pass_fds=(fd,), env={})
            except BaseException:
                ours.close()
                raise
        ended = asyncio.Event()
        self._channel = Channel(ours, self._on_message, ended.set)
        try:
            self._program.started(program.pid, program.start_ticks)
            self._channel.send_document({"op": "config"}, self._program.config())
            async with asyncio.timeout(_READY_S):
                await _either(self._ready, ended)
            if not self._ready.is_set():
                raise OSError("it ended before it was ready")
            await self._serve(program, ended)
        finally:
            await self._end(program)

    async def _serve(self, program: Program, ended: asyncio.Event) -> None:
        dying = asyncio.ensure_future(program.wait())
        closing = asyncio.ensure_future(ended.wait())
        try:
            await asyncio.wait({dying, closing}, return_when=asyncio.FIRST_COMPLETED)
            _log.warning("the edge ended; its connections are reset")
        finally:
            for task in (dying, closing):
                task.cancel()

    async def _end(self, program: Program) -> None:
        self._ready.clear()
        self._end_channel()
        for answer in self._judging.values():
            answer.cancel()
        await program.kill()

    def _end_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _on_message(self, message: Message) -> None:
        try:
            self._handle(message)
        except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
            _log.error("the edge sent a message that means nothing: %r", error)

    def _handle(self, message: Message) -> None:
        op = message["op"]
        if op == "ready":
            _log.info("the edge runs, confined by %s", ", ".join(message.get("confined", ())) or "nothing")
            self._ready.set()
            self._join()
            for inspected in self._inspected.values():
                self._push(inspected)
        elif op == "judged":
            answer = self._judging.get(message["id"])
            if answer is not None and not answer.done():
                answer.set_result(message)
        elif op == "log":
            _log.warning("the edge: %s", str(message["text"])[:1000])
        else:
            self._about_sandbox(op, message)

    def _about_sandbox(self, op: str, message: Message) -> None:
        if op == "spent":  # also of one that has just been forgotten, because it sleeps now
            if (spending := self._spending.get(message["sandbox"])) is not None:
                spending.add(message["version"], converted(message["spent"], list[Spent]))
            return
        inspected = self._inspected.get(message["sandbox"])
        if inspected is None:
            return
        if op == "unplug":
            inspected.guest.unplug(str(message["reason"]))
        elif op == "seen":
            for entry in message["entries"]:
                try:
                    inspected.guest.told(converted({"at": time.time(), **entry}, EgressDecision))
                except msgspec.ValidationError as error:  # the others are worth keeping
                    _log.error("the edge told a decision that means nothing: %s", error)


async def _either(first: asyncio.Event, second: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in (first, second)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
