"""Checks whether clients on this machine can resolve the names below the server's domain."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence

from atoll.protocol import AGENT_PORT
from atoll.server.environment import local_variables
from atoll.server.settings import Settings

LOOKUP_S = 5.0
# This name has the form of a sandbox's agent. A wildcard covers it; a line in /etc/hosts does not.
_A_SANDBOX = f"{AGENT_PORT}-00000000000000000000"

Lookup = Callable[[str], object]


def lookup(name: str) -> object:
    """Return the addresses of a name, as clients on this machine get them.

    Raises:
        OSError: The name has no address.
    """
    return socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)


async def unresolved(domain: str, find: Lookup = lookup, within_s: float = LOOKUP_S) -> list[str]:
    """Return the names that clients need but that have no address here, or none within some seconds."""
    names = [f"api.{domain}", f"{_A_SANDBOX}.{domain}"]
    found = await asyncio.gather(*(_resolves(name, find, within_s) for name in names))
    return [name for name, there in zip(names, found, strict=True) if not there]


async def _resolves(name: str, find: Lookup, within_s: float) -> bool:
    loop = asyncio.get_running_loop()
    told: asyncio.Future[bool] = loop.create_future()

    def tell(there: bool) -> None:
        if not told.done():
            told.set_result(there)

    def work() -> None:
        try:
            find(name)
            there = True
        except (OSError, UnicodeError):  # a label may be too long for a name
            there = False
        try:
            loop.call_soon_threadsafe(tell, there)
        except RuntimeError:  # the server has ended meanwhile
            return

    # A separate thread, because a resolver cannot be interrupted, and the server's end must not wait for it.
    threading.Thread(target=work, daemon=True).start()
    try:
        return await asyncio.wait_for(told, within_s)
    except TimeoutError:
        return False


def notice(settings: Settings, missing: Sequence[str]) -> str:
    """Return the notice about names without an address: the problem and the remedy."""
    domain, port = settings.domain, settings.port
    wanted = [f"*.{domain}" if name.startswith(_A_SANDBOX) else name for name in missing]
    lines = [
        f"{' and '.join(wanted)} {'have' if len(wanted) > 1 else 'has'} no address on this machine: a client here "
        "that has E2B_DOMAIN gets a DNS error.",
        f"Give *.{domain} a wildcard address record. /etc/hosts cannot replace it, because each sandbox has "
        "names of its own.",
    ]
    local = local_variables(settings)
    if local:
        named = " ".join(f"{name}={value}" for name, value in local.items())
        lines.append(
            f"Or let clients on this machine use https://localhost:{port}: leave E2B_DOMAIN unset, and set {named}"
        )
    return "\n".join(lines)
