"""Token buckets: how often a client may do something. Pure: the caller gives the time."""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from dataclasses import dataclass

LONGEST_S = 3600.0


@dataclass
class TokenBucket:
    """The rest of an allowance at a given time."""

    tokens: float
    at_s: float

    def fill(self, rate_s: float, burst: float, now_s: float) -> None:
        """Add the tokens that have accrued since, up to ``burst`` in all."""
        passed_s = max(0.0, now_s - self.at_s)
        self.tokens = min(burst, self.tokens + passed_s * rate_s)
        self.at_s = now_s


class Buckets:
    """Keeps a bucket for each name. Beyond ``most`` names, it remembers the latest ones.

    Args:
        most: How many names to remember.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, name: str, rate_s: float, burst: float, now_s: float) -> float:
        """Take a token of a name's bucket, which gets ``rate_s`` a second and holds ``burst``.

        Returns:
            0 if there was a token; else the seconds until there is one, at most an hour.
        """
        wait_s = self.wait_s(name, rate_s, burst, now_s)
        if not wait_s:
            self._buckets[name].tokens -= 1
        return wait_s

    def give(self, name: str, burst: float) -> None:
        """Give back a token that was taken."""
        if name in self._buckets:
            self._buckets[name].tokens = min(burst, self._buckets[name].tokens + 1)

    def wait_s(self, name: str, rate_s: float, burst: float, now_s: float) -> float:
        """Return the result that ``take`` would have, without taking a token."""
        bucket = self._buckets.setdefault(name, TokenBucket(burst, now_s))
        self._buckets.move_to_end(name)
        while len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        bucket.fill(rate_s, burst, now_s)
        if bucket.tokens >= 1:
            return 0.0
        return min(LONGEST_S, (1 - bucket.tokens) / rate_s) if rate_s > 0 else LONGEST_S


def retry_after(wait_s: float) -> dict[str, str]:
    """Return the header that tells a client to wait."""
    return {"Retry-After": str(max(1, math.ceil(wait_s)))}


def network_of(peer: str) -> str:
    """Return the part of an address that stands for one client. For IPv6 this is a network of 2^64."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return peer
