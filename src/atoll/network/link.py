"""The link of one sandbox: its traffic in and out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import replace

from atoll.network import namespaces
from atoll.network.addresses import GUEST_ADDRESS
from atoll.network.cable import Cable
from atoll.network.carried import CarriedGuest, Rules
from atoll.network.flows import Dialled, Flow, challenge, unanswered_s
from atoll.network.inspection import Grant, Inspected, Inspection
from atoll.network.namespaces import OuterSockets, Pins
from atoll.network.relay import Given, Relay
from atoll.policy import EVERYTHING, policy_of
from atoll.types import EgressPolicy, Policy

# After a resume the guest's stack takes a moment to look at its interface, and packets may get lost.
_CHALLENGE_PAUSES_S = (0.1, 0.6, 1.0, 3.0)


class Link(Cable):
    """A sandbox's link. Only ``Links`` makes it. Its namespaces outlive this process until ``aclose``.

    ``guest`` is the link's guest at the relay: it knows the names that the guest has asked for, and notices
    data that comes while the guest is suspended. ``was_cut`` says that an earlier supervisor, or an emergency
    unplug, has cut the link. ``was_carried`` says that the relay of an earlier supervisor has carried it on,
    with its connections.

    Args:
        link_id: Names its two pins.
        pins: The place of the pins.
        sockets: The sockets opened in the outer namespace; the link owns them from now on.
        relay: The relay of the home.
        closed: Called when the link is closed.
        adopted: Whether an earlier supervisor may have dialled on it.
        given: The part of it that an earlier supervisor's relay carries on; None if there is none.
    """

    def __init__(
        self,
        link_id: str,
        pins: Pins,
        sockets: OuterSockets,
        *,
        relay: Relay,
        closed: Callable[[Link], None],
        adopted: bool,
        given: Given | None = None,
    ) -> None:
        super().__init__(pins, sockets.counters)
        self.link_id = link_id
        self._diag = sockets.diag
        self._dialled = Dialled(sockets.diag, known=not adopted)
        carried = (sockets.relay, sockets.dns, sockets.dns_stream)
        self.was_carried = given is not None
        self.guest = CarriedGuest(
            relay,
            link_id,
            carried,
            pins.names,
            is_held=given is not None and given.is_held,
            is_cut=given is not None and given.is_cut,
        )
        self._rules = Rules()
        self._ready = list(sockets.ready)
        self._on_closed = closed
        self._forget_inspected: Callable[[], None] = lambda: None
        self._inspect_again: Callable[[], None] = lambda: None
        self._tasks: set[asyncio.Task[None]] = set()
        self._parted: list[Flow] = []
        self.was_cut = self._is_cut = sockets.is_cut
        self._closed = False

    @property
    def is_open(self) -> bool:
        """Whether this process still has the link."""
        return not self._closed

    def set_policy(
        self, policy: EgressPolicy, registries: Iterable[str] = (), *, ceiling: Policy | None = None
    ) -> None:
        """Set the sandbox's egress policy from now on. Open connections that it does not allow are reset.

        Args:
            registries: The hosts of package registries, for the preset of that name.
            ceiling: The bounds of the policy.
        """
        rules = policy_of(policy, registries)
        if rules is None and ceiling is not None:
            rules = EVERYTHING
        self._rules = replace(self._rules, policy=rules, ceiling=ceiling)
        self.guest.set(self._rules)

    def inspect(self, inspection: Inspection, sandbox_id: str, grant: Grant) -> None:
        """Have requests judged as a policy wants it. Call it before ``set_policy`` with that policy."""
        version = inspection.inspect(Inspected(sandbox_id, self.guest), grant)
        models = () if grant.models is None else grant.models.endpoints
        told = {"sandbox": sandbox_id, "version": version, "canaries": grant.canaries, "models": models}
        self._rules = replace(self._rules, **told)  # type: ignore[arg-type]
        self._forget_inspected = lambda: inspection.forget(sandbox_id, self.guest)
        self._inspect_again = lambda: self.inspect(inspection, sandbox_id, grant)

    async def dial(self, port: int, timeout_s: float) -> socket.socket:
        """Connect to a port of the guest. The socket is non-blocking, and the caller owns it.

        Raises:
            ConnectionRefusedError: No program listens on the port.
            TimeoutError: The guest did not answer within ``timeout_s`` seconds.
            OSError: The link's namespaces are gone.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._dial(port)
        except TimeoutError as error:
            raise TimeoutError(f"the guest did not answer on port {port} within {timeout_s:g} s") from error

    def end_dialled(self) -> None:
        """End every dialled connection, in whatever process its socket is.

        A paused guest's network stack still accepts connections and data, so a client would wait for ever.

        Raises:
            OSError: The kernel cannot do that, or the link is closed.
        """
        self._dialled.end()

    def cut(self) -> None:
        """Let nothing pass any more in either direction, and reset every connection. Idempotent.

        When it returns, some milliseconds later, the last byte has passed. The cut outlives this process.

        Raises:
            OSError: The kernel refused it, or the link's namespaces are gone. The relay passes nothing.
        """
        self._is_cut = True
        self.guest.cut()  # first, so that the guest still gets the resets
        self._forget_inspected()  # the edge may hold data that it has not sent on yet
        namespaces.cut(self._pins)
        self._parted += namespaces.dialled_flows(self._pins)
        with contextlib.suppress(OSError):  # no data passes on a connection that the kernel does not end
            self.end_dialled()

    async def mend(self) -> None:
        """Undo ``cut``: the policy decides again. The guest learns that its connections are gone.

        Raises:
            OSError: The kernel refused it, or the link's namespaces are gone.
        """
        await asyncio.to_thread(namespaces.mend, self._pins)
        self._is_cut = False
        self._inspect_again()
        self.guest.set(self._rules)
        parted = {*self._parted, *self.guest.mend()}  # a rule that unplugs may have cut connections before
        self._parted = []
        self.was_cut = False
        await self.reset_connections(parted)

    def hold(self) -> None:
        """Pass no bytes while the guest is suspended; its connections stay open."""
        self.guest.hold()

    def release(self) -> None:
        """Undo ``hold``, and the changes of ``holds_nothing``."""
        self.guest.release()

    async def holds_nothing(self, known: Collection[Flow]) -> bool:
        """Whether a guest that sleeps, on a link that is held, would miss nothing if it woke on another link.

        Otherwise the link keeps only the parts that its connections need. As long as it is held, it asks the
        servers whether they still know these connections.

        Args:
            known: The connections for which ``reset_connections`` will be called on the other link.
        """
        kept = self.guest.kept(known)
        if kept is not None and not (self._is_cut or self._parted or self.guest.is_asking):
            with contextlib.suppress(OSError):  # the kernel cannot tell, so keep the link
                # The kernel may still have to deliver the last data of a closed connection.
                return await asyncio.to_thread(namespaces.open_connections, self._pins) <= kept
        self.guest.probe()
        self._close_ready()
        return False

    async def flows(self) -> list[Flow]:
        """Return the guest's open TCP connections. Store them with a snapshot, for ``reset_connections``.

        Raises:
            OSError: The link's namespaces are gone.
        """
        return self.guest.flows() + await asyncio.to_thread(namespaces.dialled_flows, self._pins)

    def unanswered_s(self, *, by_guest: bool = True) -> float | None:
        """Return the seconds since the newest question without an answer; None if there is none.

        Args:
            by_guest: Whether questions of the guest count even if all of them got out. A client's always
                count.

        Raises:
            OSError: The kernel cannot list connections, or the link is closed.
        """
        return unanswered_s(self._diag, relayed=by_guest or self.guest.owes_servers)

    async def reset_connections(self, gone: Iterable[Flow] = ()) -> None:
        """Reset every TCP connection between the guest and the outside.

        Args:
            gone: Connections that a restored guest believes to be open, as ``flows`` returned them when its
                snapshot was made. The guest gets resets for these once it runs. For any other it gets one
                when it next sends something.

        Raises:
            OSError: The link's namespaces are gone.
        """
        self.guest.reset()
        flows = list(gone)
        if flows:
            raw = await asyncio.to_thread(namespaces.challenger, self._pins)
            again = self._spawn(self._challenge_again(raw, flows))
            again.add_done_callback(lambda _: raw.close())
            challenge(raw, flows)

    async def aclose(self) -> None:
        """Close everything and remove both namespaces. Idempotent."""
        await self.leave()
        await asyncio.to_thread(namespaces.remove, self._pins)

    async def leave(self, *, carried: bool = False) -> None:
        """Close this process's descriptors; the namespaces stay for the next process. Idempotent.

        Args:
            carried: Whether its connections stay too, as the relay does.
        """
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not carried:
            self._forget_inspected()
        await self.guest.aclose(stay=carried)
        self._counters.close()
        self._diag.close()
        self._close_ready()
        self._on_closed(self)

    def _close_ready(self) -> None:
        for made in self._ready:
            made.close()
        self._ready.clear()

    async def _fill(self) -> None:
        making = asyncio.ensure_future(asyncio.to_thread(namespaces.dial_sockets, self._pins))
        try:
            made = await asyncio.shield(making)
        except asyncio.CancelledError:
            made = await making
            for unused in made:
                unused.close()
            raise
        self._ready += made

    async def _dial(self, port: int) -> socket.socket:
        dialled = await self._socket()
        try:
            await asyncio.get_running_loop().sock_connect(dialled, (GUEST_ADDRESS, port))
            self._dialled.note(dialled.getsockname()[1], port)
        except BaseException:
            dialled.close()
            raise
        return dialled

    async def _socket(self) -> socket.socket:
        if not self._ready:
            await self._fill()
        if len(self._ready) == 1:
            self._spawn(self._refill())
        return self._ready.pop()

    async def _refill(self) -> None:
        # Without a prepared socket the next dial makes its own and reports the error.
        with contextlib.suppress(OSError):
            await self._fill()

    async def _challenge_again(self, raw: socket.socket, flows: list[Flow]) -> None:
        for pause_s in _CHALLENGE_PAUSES_S:
            await asyncio.sleep(pause_s)
            # The link may have been closed meanwhile, and then the guest is gone too.
            with contextlib.suppress(OSError):
                challenge(raw, flows)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
