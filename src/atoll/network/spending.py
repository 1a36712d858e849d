"""The counts for the limits of rules. They outlive the edge, which counts."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from atoll.types import Policy, RateLimit, Rule
from atoll.types.internal import from_json

_Requests = list[tuple[int, int]]


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """The edge's counts for one rule. Adding them twice changes nothing.

    Args:
        key: The rule.
        total_bytes: All bytes so far.
        requests: The intervals with requests since its last message: the end of each in milliseconds since
            1970, and its number of requests.
    """

    key: str
    total_bytes: int
    requests: _Requests


class _Count(msgspec.Struct):
    total_bytes: int = 0
    requests: dict[int, int] = msgspec.field(default_factory=dict)


class Spending:
    """A sandbox's use of the limits of its rules. A rule that a new policy keeps goes on counting.

    Args:
        stored: An earlier result of ``stored``.

    Raises:
        ValueError: ``stored`` is no such result.
    """

    def __init__(self, stored: bytes | None = None) -> None:
        self._counts = {} if stored is None else from_json(stored, dict[str, _Count])
        self._limited: dict[str, tuple[int, RateLimit]] | None = None  # None before the first policy

    def keep(self, policy: Policy) -> None:
        """Count for the rules of a policy from now on. Rules that are gone are forgotten."""
        limited = [
            (_key(rule), (number, rule.limit)) for number, rule in enumerate(policy.rules) if rule.limit
        ]
        self._limited = dict(limited)
        self._counts = {key: count for key, count in self._counts.items() if key in self._limited}

    def add(self, told: Iterable[Spent], now_ms: int | None = None) -> None:
        """Add counts from the edge. Ignores counts for rules outside the policy."""
        now_ms = _now_ms() if now_ms is None else now_ms
        for one in told:
            if self._limited is not None and one.key not in self._limited:
                continue
            count = self._counts.setdefault(one.key, _Count())
            count.total_bytes = max(count.total_bytes, one.total_bytes)
            for end_ms, many in one.requests:
                count.requests[end_ms] = max(count.requests.get(end_ms, 0), many)
            if self._limited is not None:
                count.requests = dict(_fresh(count, self._limited[one.key][1], now_ms))

    def document(self, now_ms: int | None = None) -> list[dict[str, Any]]:
        """The document from which an edge continues to count for rules with limits."""
        return list(self._document(_now_ms() if now_ms is None else now_ms))

    def stored(self) -> bytes:
        """All counts as text."""
        return msgspec.json.encode(self._counts)

    def _document(self, now_ms: int) -> Iterator[dict[str, Any]]:
        for key, (number, limit) in (self._limited or {}).items():
            count = self._counts.get(key, _Count())
            requests = sorted(_fresh(count, limit, now_ms))
            yield {"rule": number, "key": key, "total_bytes": count.total_bytes, "requests": requests}


def _fresh(count: _Count, limit: RateLimit, now_ms: int) -> _Requests:
    """The requests that still count."""
    oldest_ms = now_ms - limit.per_s * 1000
    return [(end_ms, many) for end_ms, many in count.requests.items() if end_ms > oldest_ms]


def _key(rule: Rule) -> str:
    """The same for equal rules, also those of a later version of this program."""
    return hashlib.sha256(msgspec.json.encode(rule)).hexdigest()[:32]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
