"""A guest at the relay."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll.network.carried_state import CarriedState
from atoll.network.channel import Message
from atoll.network.decided import decisions_of
from atoll.network.flows import Flow
from atoll.network.relay import Relay
from atoll.policy import proxy_document, spelled_out
from atoll.types import EgressDecision, Policy
from atoll.types.internal import converted

Reach = Callable[[str, int], Awaitable[socket.socket]]
"""Connects to a port of another sandbox, by its name or id. The caller owns the socket.

It raises PermissionError if there is none that the guest may reach, or not at this port, and OSError if nothing
answers.
"""


@dataclass(frozen=True)
class Rules:
    """A guest's egress rules.

    Args:
        policy: Its own rules; None allows everything public.
        ceiling: The bounds of the policy.
        canaries: Values that unplug the guest when it asks for a name that contains one.
        sandbox: The edge's name for it; empty if the edge knows nothing of it.
        version: The version of its policy at the edge.
        models: The name, the host and the port of each provider of models; empty without models.
    """

    policy: Policy | None = None
    ceiling: Policy | None = None
    canaries: tuple[str, ...] = ()
    sandbox: str = ""
    version: int = 0
    models: tuple[tuple[str, str, int], ...] = ()

    def document(self) -> dict[str, Any]:
        """As the relay reads it."""
        proxy = None if self.policy is None else self.policy.proxy
        models = [{"provider": name, "host": host, "port": port} for name, host, port in self.models]
        return {
            **({"models": models} if models else {}),
            "own": None if self.policy is None else spelled_out(self.policy),
            "ceiling": None if self.ceiling is None else spelled_out(self.ceiling),
            "proxy": None if proxy is None else proxy_document(proxy),
            "canaries": list(self.canaries),
        }


class CarriedGuest(CarriedState):
    """A guest at the relay. Keeps its wanted state, and tells it to each relay that starts.

    Args:
        relay: The relay of the home.
        link_id: The relay's name for it.
        sockets: The listener for TCP, the socket for DNS, and the listener for DNS over TCP. The guest owns
            them.
        names: The file with the names that the guest knows.
        is_held: Whether the relay already carries it but passes no bytes.
        is_cut: Whether the relay already carries it but allows nothing.
    """

    def __init__(
        self,
        relay: Relay,
        link_id: str,
        sockets: tuple[socket.socket, socket.socket, socket.socket],
        names: Path,
        *,
        is_held: bool = False,
        is_cut: bool = False,
    ) -> None:
        super().__init__(relay, link_id)
        self._sockets = sockets
        self._names = names
        self._rules = Rules()
        self._pushed: Rules | None = None  # the relay's current rules; None if unknown
        self._is_held, self._is_cut = is_held, is_cut
        self._came: Callable[[str], None] | None = None
        self.told: Callable[[EgressDecision], None] = _nothing
        self.unplug: Callable[[str], None] = _nothing
        self.reach: Reach = _no_sandbox
        self._reaching: set[asyncio.Task[None]] = set()
        relay.enter(link_id, self)

    def introduce(self) -> None:
        """See ``Carried``."""
        names = os.open(self._names, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fds = [*(each.fileno() for each in self._sockets), names]
            self.relay.call(self._message("link"), fds=fds)
        finally:
            os.close(names)
        if self._is_cut:
            self.relay.call(self._message("cut"))
        if self._is_held:
            self.relay.call(self._message("hold"))
        self._push(self._rules)
        if self._came is not None:
            self.relay.call(self._message("watch"))

    def follow(self, told: Callable[[EgressDecision], None], unplug: Callable[[str], None]) -> None:
        """Call ``told`` with every decision, and ``unplug`` with the reason when a rule unplugs the guest."""
        self.told, self.unplug = told, unplug
        for message in self.relay.claim(self._link_id):
            self.heard(message)

    def set(self, rules: Rules) -> None:
        """Decide by these rules from now on. Open connections that they do not allow are reset."""
        self._rules = rules
        if rules != self._pushed:
            with contextlib.suppress(ConnectionError, TimeoutError):
                self._push(rules)

    def cut(self) -> None:
        """Suspend the rules, allow nothing, and reset every connection."""
        self._is_cut = True
        self._tell("cut")

    def mend(self) -> list[Flow]:
        """Let the rules decide again. Returns all connections that a cut has reset, also a cut by a rule."""
        self._is_cut = False
        try:
            answer = self.relay.call(self._message("mend"))
        except (ConnectionError, TimeoutError):
            return []
        return converted(answer["content"]["flows"], list[Flow])

    def hold(self) -> None:
        """Pass no bytes until ``release``; connections stay open."""
        self._is_held = True
        self._tell("hold")

    def release(self) -> None:
        """Undo ``hold`` and ``probe``."""
        self._is_held, self._came = False, None
        self._tell("release")

    def reset(self) -> None:
        """Reset every connection, at both ends."""
        self._tell("reset")

    def probe(self) -> None:
        """Ask the servers until ``release`` whether they still know the connections."""
        self._tell("probe")

    def watch(self, came: Callable[[str], None]) -> None:
        """Watch the connections while they are held, also for data that has come already.

        Args:
            came: Called at most once, with the sender of the data.
        """
        if self._is_held:
            self._came = came
            self._tell("watch")

    @property
    def is_watched(self) -> bool:
        """Whether data may come on a connection that is watched."""
        return self._came is not None and bool(self._asked("watched", False))

    async def know(self, names: Mapping[str, str]) -> None:
        """Hold exactly these names of addresses, which a restored guest knows.

        Raises:
            OSError: The relay does not run, and does not start.
        """
        await self.relay.start()
        self.relay.call(
            self._message("take_over"),
            document=[{"address": address, "name": name} for address, name in names.items()],
        )

    async def aclose(self, *, stay: bool = False) -> None:
        """Reset every connection and accept no new ones; or with ``stay`` leave that to the relay. Idempotent."""
        self.relay.leave(self._link_id, stay=stay)
        for each in self._sockets:
            each.close()
        for task in self._reaching:
            task.cancel()
        await asyncio.gather(*self._reaching, return_exceptions=True)

    def heard(self, message: Message) -> None:
        """See ``Carried``."""
        op = message["op"]
        if op == "told":
            for decision in decisions_of(message):
                self.told(decision)
        elif op == "unplug":
            self.unplug(str(message["reason"]))
        elif op == "wake":
            came, self._came = self._came, None
            if came is not None:
                came(str(message["from"]))
        elif op == "reach":
            task = asyncio.create_task(self._reach(message["id"], str(message["ref"]), int(message["port"])))
            self._reaching.add(task)
            task.add_done_callback(self._reaching.discard)

    async def _reach(self, number: int, ref: str, port: int) -> None:
        answer: Message = {"op": "reached", "id": number}
        fd = None
        try:
            fd = (await self.reach(ref, port)).detach()
        except (OSError, TimeoutError) as error:
            answer["error"] = str(error) or "nothing answered in time"
        self.relay.send(answer, fd)

    def _push(self, rules: Rules) -> None:
        self._pushed = None
        message = {**self._message("rules"), "sandbox": rules.sandbox, "version": rules.version}
        self.relay.call(message, document=rules.document())
        self._pushed = rules

    def _tell(self, op: str) -> None:
        # A relay that does not run has no connections, and the next one hears of this.
        with contextlib.suppress(ConnectionError, TimeoutError):
            self.relay.call(self._message(op))


def _nothing(_: object) -> None:
    return None


async def _no_sandbox(ref: str, port: int) -> socket.socket:
    raise PermissionError(f"port {port} of the sandbox {ref} is not reached from here")
