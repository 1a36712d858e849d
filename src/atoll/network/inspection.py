"""Has the edge judge the requests of sandboxes whose rules need it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from atoll.errors import EdgeError, HostError
from atoll.host import LeftProgram, Program
from atoll.network.carried import CarriedGuest
from atoll.network.channel import Message
from atoll.network.counts import Counts
from atoll.network.decided import decisions_of
from atoll.network.edge_spans import SpanTalk
from atoll.network.edge_talk import EdgeProgram, EdgeTalk
from atoll.network.hearing import Hearing
from atoll.network.held import OPS, HeldTalk
from atoll.network.model_talk import MODEL_OPS, ModelTalk
from atoll.network.relay import Relay
from atoll.network.restarts import keep_running, run_earlier_or_new
from atoll.network.spending import Spending, Spent
from atoll.policy import spelled_out
from atoll.types import EgressDecision, EgressVerdict, Policy
from atoll.types.internal import converted

_START_S = 15.0
_JUDGE_S = 10.0
_LAST_S = 1.0
# The edge is back within two seconds after its death, and does not spin if it cannot start.
_PAUSES_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)
_log = logging.getLogger(__name__)


@dataclass
class Inspected:
    """A sandbox whose requests are judged.

    Args:
        sandbox_id: Its id.
        guest: Its guest at the relay, which hears of decisions.
    """

    sandbox_id: str
    guest: CarriedGuest
    version: int = 0
    grant: Grant | None = None
    spending: Spending = field(default_factory=Spending)


@dataclass(frozen=True)
class ModelRights:
    """The models of a sandbox.

    Args:
        allow: Names of aliases, and patterns of models.
        budgets: Where each request is reserved before it is sent.
        endpoints: The name, the host and the port of each provider.
    """

    allow: tuple[str, ...]
    budgets: tuple[str, ...]
    endpoints: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True)
class Grant:
    """The edge's instructions about a sandbox.

    Args:
        policy: The rules.
        secrets: The values of the secrets that the rules put into requests, by name.
        bound: The only hosts that may get a secret, as names and patterns, by the secret's name. Any other
            secret may go wherever a rule sends it.
        canaries: Values that a sandbox can only have stolen. A request with a canary unplugs the sandbox.
        ceiling: The rules of the sandbox's team, which judge too; None if it has none.
        models: The models that it may use; None is none.
    """

    policy: Policy
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    canaries: tuple[str, ...] = field(default=(), repr=False)
    bound: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ceiling: Policy | None = None
    models: ModelRights | None = None

    def document(self) -> dict[str, Any]:
        """As the edge reads it."""
        models = self.models
        return {
            **({} if models is None else {"models": {"allow": models.allow, "budgets": models.budgets}}),
            **spelled_out(self.policy),
            "secrets": dict(self.secrets),
            "bound": {name: list(hosts) for name, hosts in self.bound.items()},
            "canaries": list(self.canaries),
            "ceiling": None if self.ceiling is None else spelled_out(self.ceiling),
        }


class Inspection:
    """Runs the edge while a sandbox needs it. Without the edge, requests that need it do not pass.

    It takes over an earlier supervisor's edge and its connections, if that speaks the same protocol and has
    the same configuration.

    Args:
        program: The means to start it.
        relay: The relay beside it.
        counts: The counts for limits.

    Attributes:
        held: What it says of requests that it holds until somebody has answered.
        models: What it knows and says of models.
        spans: What it says of requests that belong to a trace.
        stray: Called with decisions about a sandbox that is inspected no more, and its id.
    """

    def __init__(self, program: EdgeProgram, relay: Relay, counts: Counts | None = None) -> None:
        self._program = program
        self._relay = relay
        self._has_relay = relay.pid is not None
        relay.on_apart = self._on_relay
        self._counts = Counts() if counts is None else counts
        self._inspected: dict[str, Inspected] = {}
        self._unclaimed: set[str] = set()  # sandboxes of an earlier supervisor that the edge still judges
        self._is_recovered = False
        self._version = 0
        self._pair = ""
        self._talk: EdgeTalk | None = None
        self._running: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._stays = self._refuses = False
        self._hearing = Hearing()
        self._ids = itertools.count(1)
        self._judging: dict[int, asyncio.Future[Message]] = {}
        self.held = HeldTalk()
        self.models = ModelTalk()
        self.stray: Callable[[str, Sequence[EgressDecision]], None] = lambda *_: None
        self.spans = SpanTalk()

    async def start(self) -> None:
        """Take over the edge of an earlier supervisor, if one runs. Call it before any sandbox is adopted."""
        try:
            earlier = await asyncio.to_thread(self._program.earlier)
        except HostError as error:
            _log.error("%s", error)
            return
        if earlier is None:
            return
        earlier.leave()
        self._run_on()
        try:
            async with asyncio.timeout(_START_S):
                await self._ready.wait()
        except TimeoutError:
            _log.error("the edge is not there yet: what needs it waits, and is reset")

    def forget_others(self) -> None:
        """Judge for no sandbox of an earlier supervisor that is not inspected. Call it when all are adopted."""
        self._is_recovered = True
        if self._ready.is_set():
            self._forget_unclaimed()

    async def aclose(self, *, stay: bool = False) -> None:
        """End the edge, which resets its connections. With ``stay`` leave it to the next supervisor."""
        if not stay:
            await self.hear()
        self._stays = stay
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await self._counts.aclose()

    def be_guarded(self) -> None:
        """Let the edge run on without a supervisor as long as the present guardian lives."""
        if self._talk is not None and (guardian := self._program.guardian()) is not None:
            self._tell({"op": "stay"}, guardian)

    def inspect(self, wanted: Inspected, grant: Grant) -> int:
        """Judge the requests of a sandbox by a policy from now on, also those on open connections.

        Returns:
            The version of the policy, which the relay has to know.
        """
        known = self._inspected.get(wanted.sandbox_id)
        if known is not None and known.guest is wanted.guest and known.grant == grant:
            return known.version
        wanted.spending = self._counts.keep(wanted.sandbox_id, grant.policy)
        # No other supervisor has given this number: the edge and the relay take an older one for a fault.
        self._version = max(self._version + 1, time.time_ns() // 1_000_000)
        wanted.version = self._version
        wanted.grant = grant
        self._inspected[wanted.sandbox_id] = wanted
        self._unclaimed.discard(wanted.sandbox_id)
        self._run_on()
        if self._ready.is_set():
            self._push(wanted)
        return wanted.version

    def forget(self, sandbox_id: str, guest: CarriedGuest) -> None:
        """Drop the policy, secrets and connections of a sandbox, unless another guest has become its own."""
        known = self._inspected.get(sandbox_id)
        if known is not None and known.guest is guest:
            del self._inspected[sandbox_id]
            self._tell({"op": "forget", "sandbox": sandbox_id})

    def erase(self, sandbox_id: str) -> None:
        """Drop the counts of a sandbox that is gone for ever."""
        self._counts.erase(sandbox_id)

    async def judge(
        self, grant: Grant | None, destination: Mapping[str, Any], request: Mapping[str, Any]
    ) -> EgressVerdict | None:
        """Return the verdict on a request; None if its destination's name has to be resolved first.

        Args:
            grant: The instructions about the sandbox; None allows everything public, without rules.
            destination: Its name, port and known addresses, as the edge reads them.
            request: The request, likewise.

        Raises:
            EdgeError: The edge does not run, or does not answer.
        """
        self._run_on()
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

    def answer(self, sandbox_id: str, answer: Message) -> None:
        """Answer a held request.

        Args:
            answer: Its ``ask`` and ``digest``, the ``action``, ``for_s``, and a ``reason`` and ``code`` for the guest.

        Raises:
            EdgeError: The edge does not run.
        """
        try:
            self._require().send({"op": "answer", "sandbox": sandbox_id, **answer})
        except OSError as error:
            raise EdgeError(f"the answer does not reach the request: {error}") from error

    async def hear(self) -> None:
        """Hear of all decisions until now, and of the counts of limits. Otherwise it may take a second."""
        if self._ready.is_set():
            await self._hearing.wait(lambda: self._tell({"op": "tell"}), _LAST_S)

    def refuse(self, refuses: bool) -> None:
        """Refuse each new request from now on, or judge them again."""
        self._refuses = refuses
        self._tell({"op": "late", "late": refuses})

    def _run_on(self) -> None:
        if self._running is None:
            running = keep_running("the edge", self._run_once, _PAUSES_S)
            self._running = asyncio.get_running_loop().create_task(running)

    def _require(self) -> EdgeTalk:
        if self._talk is None or not self._ready.is_set():
            raise OSError("the process that judges requests does not run")
        return self._talk

    def _tell(self, message: Message, fd: int | None = None) -> None:
        # A message that does not get there concerns connections that end with the process.
        try:
            talk = self._require()
        except OSError:
            if fd is not None:
                os.close(fd)
            return
        with contextlib.suppress(OSError):
            talk.send(message, fd)

    def _on_relay(self) -> None:
        self._has_relay = True
        self._join()

    def _join(self) -> None:
        """Give the relay and the edge a channel of their own, if they have none yet that both know."""
        if not (self._has_relay and self._ready.is_set()) or (self._pair and self._pair == self._relay.pair):
            return
        self._pair = self._relay.pair = secrets.token_hex(8)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._relay.send({"op": "edge", "pair": self._pair}, ours.detach())
        self._tell({"op": "relay", "pair": self._pair}, theirs.detach())

    def _push(self, inspected: Inspected) -> None:
        message = {"op": "policy", "sandbox": inspected.sandbox_id, "version": inspected.version}
        document = inspected.grant.document() if inspected.grant else {}
        document |= {"spent": inspected.spending.document(), "spans": self.spans.is_wanted}
        try:
            self._require().send_document(message, document)
        except OSError as error:
            # It would judge by the policy of before: better that it ends.
            _log.error("the edge takes no policy: %s", error)
            self._end_talk()

    def _forget_unclaimed(self) -> None:
        for sandbox_id in self._unclaimed:
            self._tell({"op": "forget", "sandbox": sandbox_id})
        self._unclaimed.clear()

    async def _run_once(self) -> None:
        await run_earlier_or_new(self._program, self._run, stays=lambda: self._stays)

    async def _run(self, program: Program | LeftProgram, is_new: bool) -> None:
        ended = asyncio.Event()
        try:
            self._talk = EdgeTalk(self._program.socket, self._on_message, ended)
            greeting = await self._talk.greet(self._program.config())
            _log.info("the edge %s, confined by %s", "runs" if is_new else "is taken over", greeting.confined)
            self._pair = greeting.pair
            self._unclaimed = set(greeting.policies) - self._inspected.keys()
            self._version = max(self._version, *greeting.policies.values(), 0)
            self.models.begun(self._talk, greeting.holds)
            self._ready.set()
            self.be_guarded()
            if self._refuses:
                self.refuse(True)
            self._join()
            for inspected in self._inspected.values():
                self._push(inspected)
            if self._is_recovered:
                self._forget_unclaimed()
            await self._serve(program, ended)
        finally:
            self._end()

    async def _serve(self, program: Program | LeftProgram, ended: asyncio.Event) -> None:
        dying = asyncio.ensure_future(program.wait())
        closing = asyncio.ensure_future(ended.wait())
        try:
            await asyncio.wait({dying, closing}, return_when=asyncio.FIRST_COMPLETED)
            _log.warning("the edge ended; its connections are reset")
        finally:
            for task in (dying, closing):
                task.cancel()

    def _end(self) -> None:
        self._ready.clear()
        self._end_talk()
        self._pair = ""
        for answer in self._judging.values():
            if not answer.done():
                answer.set_exception(ConnectionError("it has ended"))
        self._hearing.lost()
        self.held.lost()

    def _end_talk(self) -> None:
        self.models.ended()
        if self._talk is not None:
            self._talk.close()
            self._talk = None

    def _on_message(self, message: Message) -> None:
        try:
            self._handle(message)
        except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
            _log.error("the edge sent a message that means nothing: %r", error)

    def _handle(self, message: Message) -> None:
        op = message["op"]
        if op == "judged":
            answer = self._judging.get(message["id"])
            if answer is not None and not answer.done():
                answer.set_result(message)
        elif op == "told":
            self._hearing.answered()
        elif op == "log":
            _log.warning("the edge: %s", str(message["text"])[:1000])
        elif op == "spent":  # this may be about a sandbox that has just fallen asleep and was forgotten
            self._counts.add(message["sandbox"], converted(message["spent"], list[Spent]))
        elif op in MODEL_OPS:
            self.models.handle(message)
        elif op == "spans":  # likewise
            self.spans.handle(message)
        elif op in OPS:  # how one ended matters also when its sandbox is gone
            known = self._inspected.get(message["sandbox"])
            rules = known.grant.policy.rules if known is not None and known.grant is not None else ()
            self.held.handle(message, rules)
        elif (inspected := self._inspected.get(message["sandbox"])) is not None:
            _pass_on(inspected, message)
        elif op == "seen":
            self.stray(message["sandbox"], decisions_of(message))


def _pass_on(inspected: Inspected, message: Message) -> None:
    if message["op"] == "unplug":
        inspected.guest.unplug(str(message["reason"]))
    elif message["op"] == "seen":
        for decision in decisions_of(message):
            inspected.guest.told(decision)
