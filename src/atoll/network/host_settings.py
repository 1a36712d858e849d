"""The relay's settings for this host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from atoll.network.channel import Message
from atoll.network.resolvers import HostNameservers

PROXY_TIMEOUT_S = 20.0
"""How long an upstream proxy may take to connect: it has to resolve and connect itself."""

Nameservers = Callable[[], Sequence[tuple[str, int]]]


@dataclass
class HostSettings:
    """The relay's settings for this host. The relay's owner reads them again and again, and they may change.

    Args:
        nameservers: Returns the addresses and ports of the nameservers that get the guests' questions.
        proxy_timeout_s: How long an upstream proxy may take to connect.
        foreign: Ranges of addresses that always count as another host's.
    """

    nameservers: Nameservers = field(default_factory=HostNameservers)
    proxy_timeout_s: float = PROXY_TIMEOUT_S
    foreign: tuple[str, ...] = ()

    def __call__(self) -> Message:
        """As the relay reads it."""
        return {
            "nameservers": [
                f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
                for address, port in self.nameservers()
            ],
            "proxy_patience_ms": int(self.proxy_timeout_s * 1000),
            "foreign": list(self.foreign),
        }
