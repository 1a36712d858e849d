"""The link of one sandbox: its traffic in and out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path

from atoll.host import to_the_end
from atoll.network import edge, veth
from atoll.network.addresses import GUEST_ADDRESS
from atoll.network.dnsclient import Nameservers
from atoll.network.edge import EdgeSockets, Pins
from atoll.network.egress import Egress, Outside
from atoll.network.flows import Dialled, Flow, challenge
from atoll.network.forwarder import NameForwarder
from atoll.network.inspection import Grant, Inspected, Inspection
from atoll.network.names import NameTable
from atoll.network.naming import NamedAnswers
from atoll.network.plug import Plug
from atoll.network.relay import Relay
from atoll.network.uplink import OpenUplink
from atoll.policy import policy_of
from atoll.types import EgressPolicy

# After a resume the guest's stack takes a moment to look at its interface, and packets may get lost.
_CHALLENGE_PAUSES_S = (0.1, 0.6, 1.0, 3.0)


class Link:
    """One sandbox's link. Only ``Links`` makes it. Its namespaces outlive this process until ``aclose``.

    ``egress`` decides what its guest reaches, and knows the names that the guest has asked for. ``plug`` cuts it
    off.

    Args:
        link_id: Names its two pins.
        pins: Where they are.
        sockets: The sockets opened in the edge; the link owns them from now on.
        outside: What all guests have in common on their way out.
        nameservers: Returns the nameservers that get the guest's questions.
        closed: Called when the link is closed.
        adopted: Whether an earlier supervisor may have dialled on it.
    """

    def __init__(
        self,
        link_id: str,
        pins: Pins,
        sockets: EdgeSockets,
        *,
        outside: Outside,
        nameservers: Nameservers,
        closed: Callable[[Link], None],
        adopted: bool,
    ) -> None:
        self.link_id = link_id
        self._pins = pins
        self._counters = sockets.counters
        self._diag = sockets.diag
        self._dialled = Dialled(sockets.diag, known=not adopted)
        self.egress = Egress(NameTable(pins.names), outside)
        self._relay = Relay(sockets.relay, self.egress)
        named = NamedAnswers(self.egress, outside.resolver)
        self._forwarder = NameForwarder(sockets.dns, sockets.dns_stream, nameservers, named)
        self._ready = list(sockets.ready)
        self._on_closed = closed
        self._forget_inspected: Callable[[], None] = lambda: None
        self._inspect_again: Callable[[], None] = lambda: None
        self._tasks: set[asyncio.Task[None]] = set()
        self._rate_mib_s: float | None = None
        self._closed = False
        self.plug = Plug(
            pins,
            self.egress,
            self._relay,
            self._dialled,
            part=lambda: self._forget_inspected(),
            join=self._join,
            was_cut=sockets.is_cut,
        )

    @property
    def netns(self) -> Path:
        """The network namespace that the sandbox's machine runs in."""
        return self._pins.inner

    def set_policy(self, policy: EgressPolicy, registries: Iterable[str] = ()) -> None:
        """Set what the sandbox may reach from now on. Open connections that it does not allow are reset.

        Args:
            registries: The hosts of package registries, for the preset of that name.
        """
        self.egress.set(policy_of(policy, registries))
        self._relay.judge_again()

    def inspect(self, inspection: Inspection, sandbox_id: str, grant: Grant) -> None:
        """Have requests judged as a policy wants it. Call it before ``set_policy`` with that policy."""
        wanted = Inspected(sandbox_id, self._relay, self.egress.told, self.egress.unplug)
        self._relay.inspector = inspection.inspect(wanted, grant)
        self._forget_inspected = lambda: inspection.forget(sandbox_id, self._relay)
        self._inspect_again = lambda: self.inspect(inspection, sandbox_id, grant)

    async def set_rate(self, mib_s: float | None) -> None:
        """Limit what the guest sends and what it receives, each, in MiB per second. None is no limit.

        Raises:
            OSError: The kernel cannot do that, or the link's namespaces are gone.
        """
        if mib_s != self._rate_mib_s:
            await asyncio.to_thread(edge.shape, self._pins, None if mib_s is None else int(mib_s * (1 << 20)))
            self._rate_mib_s = mib_s

    async def prepare(self) -> None:
        """Make the link ready for another machine, because a machine removes the interface's address.

        Call it when no machine runs on the link. A link that was just taken is ready.

        Raises:
            OSError: The link's namespaces are gone.
        """
        await asyncio.to_thread(edge.address_guest, self._pins)

    async def open_uplink(self) -> OpenUplink:
        """Take the guest's interface for a machine that does not take it by itself.

        The caller owns the socket. Call ``prepare`` if no machine gets it after all.

        Raises:
            OSError: The link's namespaces are gone.
        """
        # Not cancelled: a thread that went on could remove the address after ``prepare`` has set it for
        # another machine.
        return await to_the_end(asyncio.to_thread(edge.open_uplink, self._pins))

    async def dial(self, port: int, timeout_s: float) -> socket.socket:
        """Connect to a port of the guest. The socket is non-blocking, and the caller owns it.

        Raises:
            ConnectionRefusedError: Nothing listens there.
            TimeoutError: The guest did not answer within ``timeout_s`` seconds.
            OSError: The link's namespaces are gone.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._dial(port)
        except TimeoutError as error:
            raise TimeoutError(f"the guest did not answer on port {port} within {timeout_s:g} s") from error

    def end_dialled(self) -> None:
        """End every dialled connection, whichever process has its socket now.

        A paused guest's network stack still accepts connections and data, so a client would wait on one for
        ever.

        Raises:
            OSError: The kernel cannot do that, or the link is closed.
        """
        self._dialled.end()

    def traffic(self) -> tuple[int, int]:
        """Return the bytes that the guest has received and sent since the link was made.

        Raises:
            OSError: The link is closed.
        """
        return veth.traffic(self._counters)

    def hold(self) -> None:
        """Pass no bytes while the guest is suspended; its connections stay open."""
        self._relay.hold()

    def release(self) -> None:
        """Undo ``hold``."""
        self._relay.release()

    async def flows(self) -> list[Flow]:
        """Return the guest's open TCP connections. Store them with a snapshot, for ``reset_connections``.

        Raises:
            OSError: The link's namespaces are gone.
        """
        return self._relay.flows() + await asyncio.to_thread(edge.dialled_flows, self._pins)

    async def reset_connections(self, gone: Iterable[Flow] = ()) -> None:
        """Reset every TCP connection between the guest and the outside.

        Args:
            gone: Connections that a restored guest believes to be open, as ``flows`` returned them when its
                snapshot was made. The guest gets resets for these once it runs. For any other it gets one
                when it next sends something.

        Raises:
            OSError: The link's namespaces are gone.
        """
        self._relay.reset()
        flows = list(gone)
        if flows:
            raw = await asyncio.to_thread(edge.challenger, self._pins)
            again = self._spawn(self._challenge_again(raw, flows))
            again.add_done_callback(lambda _: raw.close())
            challenge(raw, flows)

    async def aclose(self) -> None:
        """Close everything and remove both namespaces. Idempotent."""
        await self.leave()
        await asyncio.to_thread(edge.remove, self._pins)

    async def leave(self) -> None:
        """Close what this process has open; the namespaces stay for the next process. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.plug.is_open = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._forget_inspected()
        await self._relay.aclose()
        await self._forwarder.aclose()
        self._counters.close()
        self._diag.close()
        for made in self._ready:
            made.close()
        self._ready.clear()
        self._on_closed(self)

    async def _join(self, parted: list[Flow]) -> None:
        self._inspect_again()
        await self.reset_connections(parted)

    async def _fill(self) -> None:
        making = asyncio.ensure_future(asyncio.to_thread(edge.dial_sockets, self._pins))
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
