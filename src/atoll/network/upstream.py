"""Connects through an upstream proxy, which is not trusted: its answers are bounded, and so is its time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable

from atoll.network.handshake import Exactly, Handshake, ProxyError, Send, Until, handshake
from atoll.network.resolver import ResolveError, Resolver
from atoll.network.splice import tune
from atoll.policy import (
    Judge,
    Verdict,
    closed,
    is_sealed,
    names_address,
    plain,
    plain_host,
    proxy_address,
    within,
)
from atoll.types import UpstreamProxy

# It has to resolve and connect itself.
PROXY_TIMEOUT_S = 20.0
_PEEKED_BYTES = 4096


async def connect_through(
    proxy: UpstreamProxy,
    host: str,
    port: int,
    *,
    resolver: Resolver,
    is_own: Callable[[str], bool],
    ceiling: Judge | None = None,
    timeout_s: float = PROXY_TIMEOUT_S,
) -> socket.socket:
    """Have a proxy connect to a host, by its name or its address. The caller owns the socket.

    Args:
        resolver: Resolves the proxy's own name.
        is_own: Whether an address belongs to this host. A range opens none of them, but the address alone does.
        ceiling: Must let the proxy be connected to, as any server.
        timeout_s: How long the proxy may take in all.

    Raises:
        ProxyError: The proxy may not be where it is, cannot be reached, refuses, lies, or takes too long.
    """
    if is_sealed(proxy):
        raise ProxyError("its password cannot be opened: set the policy again, with the password")
    place = proxy_address(proxy)
    name = plain_host(place.host)
    if ceiling is not None and name is not None:
        _check(ceiling.name(name))
    try:
        async with asyncio.timeout(timeout_s):
            address = await _address_of(place.host, proxy, resolver, is_own)
            if ceiling is not None:
                _check(ceiling.connection(name, address, place.port))
            remote = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
            with contextlib.ExitStack() as failed:
                failed.callback(remote.close)
                tune(remote)
                await _connect(remote, (address, place.port))
                await _follow(handshake(place, host, port), remote)
                failed.pop_all()
            return remote
    except TimeoutError:
        raise ProxyError(f"it gives no answer within {timeout_s:g} s") from None
    except ProxyError:
        raise
    except (EOFError, OSError):
        raise ProxyError("it ends the connection") from None


def _check(verdict: Verdict) -> None:
    if verdict.action != "allow":
        # One that looks into requests would see none of those to the proxy.
        why = verdict.reason or "it looks into requests, which a proxy hides"
        raise ProxyError(f"the team's ceiling does not let it be used: {why}")


async def _address_of(
    host: str, proxy: UpstreamProxy, resolver: Resolver, is_own: Callable[[str], bool]
) -> str:
    try:
        addresses = [host] if plain_host(host) is None else await resolver.addresses(host)
    except ResolveError:
        raise ProxyError("its name cannot be resolved") from None
    refusals = []
    for address in addresses:
        own = is_own(address)
        why = "this host" if own else closed(plain(address))
        if why is None or (names_address if own else within)(address, proxy.addresses):
            return address
        # Who gave a name is not told where it leads.
        place = f"at {address}, which" if plain_host(host) is None else "at an address that"
        refusals.append(f"it is {place} is {why}")
    raise ProxyError(f"{refusals[0]}, and its `addresses` do not open it")


async def _connect(remote: socket.socket, place: tuple[str, int]) -> None:
    try:
        await asyncio.get_running_loop().sock_connect(remote, place)
    except TimeoutError:  # the kernel's own, which is an OSError
        raise
    except OSError as error:
        raise ProxyError(f"it cannot be reached: {os.strerror(error.errno or 0)}") from None


async def _follow(steps: Handshake, remote: socket.socket) -> None:
    data = b""
    while True:
        try:
            step = steps.send(data) if data else next(steps)
        except StopIteration:
            return
        if isinstance(step, Send):
            await asyncio.get_running_loop().sock_sendall(remote, step.data)
            data = b""
        elif isinstance(step, Exactly):
            data = await _exactly(remote, step.count)
        else:
            data = await _until(remote, step)


async def _exactly(remote: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = await asyncio.get_running_loop().sock_recv(remote, count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


async def _until(remote: socket.socket, wanted: Until) -> bytes:
    """Receive up to an end, and not a byte more: what follows may be handed to another process."""
    data = b""
    while not data.endswith(wanted.end):
        if len(data) >= wanted.most:
            raise ProxyError("its answer is too long")
        await _readable(remote)
        peeked = remote.recv(min(_PEEKED_BYTES, wanted.most - len(data)), socket.MSG_PEEK)
        if not peeked:
            raise EOFError
        at = (data + peeked).find(wanted.end)
        count = len(peeked) if at < 0 else at + len(wanted.end) - len(data)
        data += remote.recv(count)
    return data


async def _readable(remote: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(remote, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(remote)
