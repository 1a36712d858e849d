"""What the limits of rules have counted. It outlives the edge, which counts."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from atoll.types import Policy, Rule

# Requests are counted together by at least this part of the time that their limit is about.
_PARTS = 500
_LEAST_S = 1.0


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What the edge tells of one rule.

    Args:
        rule: The index of the rule.
        total_bytes: All bytes so far.
        requests: The requests since it last told.
    """

    rule: int
    total_bytes: int
    requests: int


@dataclass
class _Count:
    total_bytes: int = 0
    # when the last of some requests came, at the latest, and how many they are
    requests: deque[tuple[float, int]] = field(default_factory=deque)


class Spending:
    """What one sandbox has used of the limits of its rules. A rule that a new policy keeps goes on counting."""

    def __init__(self) -> None:
        self._counts: dict[bytes, _Count] = {}
        self._versions: dict[int, tuple[Rule, ...]] = {}

    def keep(self, policy: Policy) -> int:
        """Count for the rules of a policy from now on, and return the number of this version of the policy.

        Rules that are gone are forgotten, but what the edge has counted by the version before still comes in.
        """
        newest = max(self._versions, default=0)
        self._versions = {number: rules for number, rules in self._versions.items() if number == newest}
        self._versions[newest + 1] = policy.rules
        known = {_key(rule) for rules in self._versions.values() for rule in rules if rule.limit is not None}
        self._counts = {key: count for key, count in self._counts.items() if key in known}
        return newest + 1

    def add(self, version: int, told: Iterable[Spent], now_s: float | None = None) -> None:
        """Add what the edge has counted by a version of the policy. What names no rule of it is ignored."""
        rules = self._versions.get(version, ())
        now_s = time.monotonic() if now_s is None else now_s
        for one in told:
            if not 0 <= one.rule < len(rules) or (limit := rules[one.rule].limit) is None:
                continue
            count = self._counts.setdefault(_key(rules[one.rule]), _Count())
            count.total_bytes = max(count.total_bytes, one.total_bytes)
            if one.requests <= 0 or limit.requests is None:
                continue
            last_s = now_s + max(limit.per_s / _PARTS, _LEAST_S)
            if count.requests and count.requests[-1][0] >= now_s:
                last_s, requests = count.requests.pop()
                count.requests.append((last_s, requests + one.requests))
            else:
                count.requests.append((last_s, one.requests))
            while count.requests[0][0] <= now_s - limit.per_s:
                count.requests.popleft()

    def document(self, now_s: float | None = None) -> list[dict[str, Any]]:
        """What an edge has to know of the newest version before it counts on."""
        return list(self._document(time.monotonic() if now_s is None else now_s))

    def _document(self, now_s: float) -> Iterator[dict[str, Any]]:
        for number, rule in enumerate(self._versions[max(self._versions)] if self._versions else ()):
            count = self._counts.get(_key(rule)) if rule.limit is not None else None
            if count is not None:
                requests = [[max(now_s - last_s, 0.0), many] for last_s, many in count.requests]
                yield {"rule": number, "total_bytes": count.total_bytes, "requests": requests}


def _key(rule: Rule) -> bytes:
    return msgspec.json.encode(rule)
