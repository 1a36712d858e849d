"""Addresses of upstream proxies, and the names that are reached through one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, cast
from urllib.parse import unquote_to_bytes

import msgspec

from atoll.policy.hosts import plain_host
from atoll.policy.ports import LAST_PORT
from atoll.policy.ranges import network_of, plain
from atoll.types import EgressPolicy, Policy, UpstreamProxy

LONGEST_WORD_BYTES = 255
SEALED = "atoll-sealed."
"""The prefix of a stored password, which is sealed and of no use until opened."""
_URL = re.compile(
    r"(?P<scheme>http|socks5)://((?P<user>[^\s/@:]+)(:(?P<password>[^\s/@]*))?@)?"
    r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\s/@:\[\]]+):(?P<port>[0-9]{1,5})/?"
)
_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")


@dataclass(frozen=True)
class ProxyAddress:
    """Where a proxy is, and as whom to use it. Without a user it wants none."""

    scheme: Literal["http", "socks5"]
    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)


def proxy_address(proxy: UpstreamProxy) -> ProxyAddress:
    """Return the parts of a proxy's URL.

    Raises:
        ValueError: The URL is not a proxy's. The text does not show it, because it may have a password.
    """
    found = _found(proxy.url)
    host = found["host"]
    try:
        host = plain_host(host) or str(plain(host.strip("[]")))
    except ValueError:
        raise ValueError(f"{host[:80]!r} is no name and no address") from None
    port = int(found["port"])
    if not 0 < port <= LAST_PORT:
        raise ValueError("its port is invalid")
    user, password = (_word(found[name] or "") for name in ("user", "password"))
    if found["scheme"] == "http" and ":" in user:
        raise ValueError("its user has a colon")
    return ProxyAddress(cast(Literal["http", "socks5"], found["scheme"]), host, port, user, password)


def login_of(proxy: UpstreamProxy) -> tuple[str, str | None]:
    """Return a proxy's address and user as one text, and the password as in the URL."""
    found = _found(proxy.url)
    user = f"{found['user']}@" if found["user"] else ""
    return f"{found['scheme']}://{user}{found['host'].lower()}:{found['port']}", found["password"]


def with_plain_host(proxy: UpstreamProxy) -> str:
    """Return the URL of a proxy with its name in ASCII."""
    found = _found(proxy.url)
    begin, end = found.span("host")
    return proxy.url[:begin] + (plain_host(found["host"]) or found["host"]) + proxy.url[end:]


def is_sealed(proxy: UpstreamProxy) -> bool:
    """Whether the password of a proxy is in its stored, sealed form."""
    password = _found(proxy.url)["password"]
    return password is not None and password.startswith(SEALED)


def with_password(proxy: UpstreamProxy, written: str) -> UpstreamProxy:
    """Return a proxy with another password, in the form of a URL, in place of its own."""
    place, old = login_of(proxy)
    if old is None:
        return proxy
    head, _, tail = place.rpartition("@")
    return msgspec.structs.replace(proxy, url=f"{head}:{written}@{tail}")


def masked(network: EgressPolicy) -> EgressPolicy:
    """Return a policy for display: without its proxy's password."""
    if not isinstance(network, Policy) or network.proxy is None:
        return network
    return msgspec.structs.replace(network, proxy=network.proxy.masked())


def is_loopback_name(name: str) -> bool:
    """Whether a plain name means the computer that resolves it."""
    return name.split(".")[-1] in ("localhost", "localdomain")


def within(address: str, ranges: Sequence[str]) -> bool:
    """Whether an address is in one of these ranges."""
    return any(plain(address) in network_of(text) for text in ranges)


def _found(url: str) -> re.Match[str]:
    found = _URL.fullmatch(url)
    if found is None:
        raise ValueError("it is no URL of a proxy")
    return found


def _word(written: str) -> str:
    if _ESCAPE.search(written):
        raise ValueError("its user or password has a % that begins no %XX")
    try:
        word = unquote_to_bytes(written).decode()
    except UnicodeDecodeError:
        raise ValueError("its user or password is no UTF-8") from None
    if len(word.encode()) > LONGEST_WORD_BYTES or not word.isprintable():
        raise ValueError(
            f"its user or password has more than {LONGEST_WORD_BYTES} bytes, or a control character"
        )
    return word
