"""Egress policies: checking them, and deciding by them. Pure: nothing here asks the host."""

from atoll.policy.check import check_policy
from atoll.policy.hosts import matches_host, plain_host, plain_pattern
from atoll.policy.judge import Judge, Verdict, rule_name
from atoll.policy.presets import policy_of
from atoll.policy.ranges import CLOSED, closed, plain
from atoll.policy.shadow import shadowed

__all__ = [
    "CLOSED",
    "Judge",
    "Verdict",
    "check_policy",
    "closed",
    "matches_host",
    "plain",
    "plain_host",
    "plain_pattern",
    "policy_of",
    "rule_name",
    "shadowed",
]
