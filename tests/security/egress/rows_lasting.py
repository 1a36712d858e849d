"""Connections that outlive what allowed them: a change of the policy, a sleep, a restore, a fork, unplugging."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

from atoll.types import Policy, Rule
from tests.security.egress.ground import EVIL, GOOD, OTHER, Ground
from tests.security.egress.row import Row, SetUp, allowing

_PIECE = b"\0afterwards"
_WEBSOCKET = f"GET /ok HTTP/1.1\r\nHost: {GOOD}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n".encode()
_SWITCHED = b"HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
_LONG = f"POST /ok HTTP/1.1\r\nHost: {GOOD}\r\nContent-Length: 100000\r\n\r\nbegun".encode()

Event = Callable[[Ground], Awaitable[None] | None]


def _opened(begins: bytes, answer: bytes) -> Callable[[Ground], Awaitable[socket.socket]]:
    """A connection on which something passes for as long as it is open."""

    async def work(ground: Ground) -> socket.socket:
        ground.target.answer = answer
        connected = await ground.guest.connect(await ground.address(), ground.port)
        connected.sendall(begins)
        await ground.target.until(lambda: bool(ground.raw().strip()))
        if answer:
            await ground.hear(connected, len(answer))
        return connected

    return work


_RAW, _UPGRADED, _UPLOAD = _opened(b"\0begun", b""), _opened(_WEBSOCKET, _SWITCHED), _opened(_LONG, b"")
_KINDS = {
    "a connection of another protocol": (_RAW, allowing({})),
    "a websocket": (_UPGRADED, allowing({"protocol": "http"})),
    "an upload": (_UPLOAD, allowing({"methods": ("POST", "GET")})),
}


def _lasts(
    trick: str, begin: Callable[[Ground], Awaitable[socket.socket]], first: SetUp, off: Event, on: Event
) -> Row:
    """With the check off, what changes leaves the connection allowed."""

    async def attempt(ground: Ground) -> bool:
        with await begin(ground) as connected:
            happened = (off if ground.expects else on)(ground)
            if happened is not None:
                await happened
            if not ground.expects:
                return await _goes_on(connected)
            connected.sendall(_PIECE)
            await ground.target.until(lambda: _PIECE in ground.raw())
        return True

    return Row(trick, attempt, first, first)


async def _goes_on(connected: socket.socket) -> bool:
    """Whether a connection still carries something long after it should not: it has neither ended nor a refusal."""
    connected.settimeout(0)
    for _ in range(1000):
        try:
            connected.sendall(b"\0")
        except BlockingIOError:
            pass
        except OSError:
            return False
        with contextlib.suppress(BlockingIOError):
            try:
                heard = connected.recv(1 << 16)
                if not heard or b" 403 " in heard:
                    return False
            except ConnectionError:
                return False
        await asyncio.sleep(0.01)
    return True


def _same(ground: Ground) -> None:
    """A new policy that allows the same, and more."""
    allowing({"methods": ("POST", "GET")}, {"hosts": (OTHER, GOOD)}, {"hosts": (EVIL,)})(ground)


def _same_raw(ground: Ground) -> None:
    allowing({"hosts": (OTHER, GOOD)})(ground)


def _narrower(ground: Ground) -> None:
    ground.apply(Policy.allow(OTHER))


def _denied(ground: Ground) -> None:
    allowing({"action": "deny"}, {"hosts": ("*",)})(ground)


def _get_only(ground: Ground) -> None:
    allowing({"paths": ("/else",)})(ground)


async def _asleep(ground: Ground, change: Callable[[Ground], None]) -> None:
    """The policy changes while the guest sleeps."""
    ground.guest.link.hold()
    change(ground)
    ground.guest.link.release()


async def _restored(ground: Ground) -> None:
    await ground.guest.link.reset_connections(await ground.guest.link.flows())


def _unplugged(ground: Ground) -> None:
    ground.guest.link.cut()


async def _unplugged_and_back(ground: Ground) -> None:
    ground.guest.link.cut()
    await ground.guest.link.mend()


async def _nothing(_: Ground) -> None:
    return None


def _rows() -> list[Row]:
    rows = []
    for kind, (begin, first) in _KINDS.items():
        same = _same_raw if begin is _RAW else _same
        events: dict[str, tuple[Event, Event]] = {
            "a policy without its name": (same, _narrower),
            "a rule that denies it": (same, _denied),
            "a rule for other requests": (same, _get_only),
            "no network": (same, lambda ground: ground.apply("none")),
            "a policy that changed while it slept": (
                lambda ground, same=same: _asleep(ground, same),  # type: ignore[misc]
                lambda ground: _asleep(ground, _narrower),
            ),
            "a restore": (_nothing, _restored),
            "unplugging": (_nothing, _unplugged),
            "unplugging and replugging": (_nothing, _unplugged_and_back),
        }
        rows += [_lasts(f"{kind} outlives {event}", begin, first, *both) for event, both in events.items()]
    return rows


def _forked() -> Row:
    async def attempt(ground: Ground) -> bool:
        """A copy knows the names of its original, and has rules of its own."""
        known = await ground.address()
        copy = await ground.neighbour()
        await copy.link.guest.know(await ground.guest.link.guest.names())
        ground.apply(Policy.allow(GOOD if ground.expects else OTHER), guest=copy)
        ground.hurries = True
        await ground.talk(known, ground.port, _PIECE, guest=copy)
        return _PIECE in ground.raw()

    both = allowing({})
    return Row("a name of the original in a copy that may not use it", attempt, both, both)


def _relayed() -> Row:
    """One program inside connects for another: what leaves is judged all the same."""

    async def attempt(ground: Ground) -> bool:
        with ground.guest.listen(4000) as relay:
            caller = ground.guest.socket()
            with caller:
                await asyncio.to_thread(caller.connect, ("127.0.0.1", 4000))
                inner, _ = await asyncio.to_thread(relay.accept)
                with inner:
                    caller.sendall(_PIECE)
                    asked = await asyncio.to_thread(inner.recv, 100)
        ground.hurries = True
        await ground.talk(await ground.address(EVIL), ground.port, asked)
        return _PIECE in ground.raw()

    def off(ground: Ground) -> None:
        ground.apply(Policy(rules=(Rule(hosts=(GOOD, EVIL)),)))

    return Row("a relay inside", attempt, off, allowing({}))


ROWS = [*_rows(), _forked(), _relayed()]
