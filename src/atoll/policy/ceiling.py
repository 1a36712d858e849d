"""A team's ceiling: the bounds of its sandboxes, whatever their own policies say.

A policy and a ceiling judge side by side. Traffic must pass both, so neither can widen the other.
"""

from __future__ import annotations

from collections.abc import Iterable

from atoll.errors import InvalidSpecError
from atoll.policy.check import check_policy, rule_name
from atoll.policy.presets import policy_of
from atoll.types import EgressPolicy, Policy, Rule

EVERYTHING = Policy(rules=(Rule(name="internet"),))
"""``internet`` as rules: every public address."""


def ceiling_of(network: EgressPolicy, registries: Iterable[str] = ()) -> Policy:
    """Return the rules of a ceiling. See ``policy_of``; ``internet`` has rules here.

    Raises:
        InvalidSpecError: ``network`` is neither a preset's name nor a policy.
    """
    rules = policy_of(network, registries)
    return EVERYTHING if rules is None else rules


def check_ceiling(ceiling: Policy) -> None:
    """Check a policy for use as a ceiling. A ceiling only decides.

    Raises:
        InvalidSpecError: The policy is invalid, only observes, asks, changes or limits requests, or has a proxy.
    """
    check_policy(ceiling)
    if ceiling.mode == "observe":
        raise InvalidSpecError(
            "a ceiling cannot only observe",
            hint="let the policies of sandboxes observe, and leave `mode` out",
        )
    if ceiling.proxy is not None:
        raise InvalidSpecError("a ceiling has no proxy", hint="give the proxy in the policies of sandboxes")
    for number, rule in enumerate(ceiling.rules):
        if rule.action == "ask":
            raise InvalidSpecError(
                f"{rule_name(ceiling, number)}: a ceiling asks nobody",
                hint="let the policies of sandboxes ask",
            )
        if rule.changes:
            raise InvalidSpecError(
                f"{rule_name(ceiling, number)}: a ceiling changes and limits no requests",
                hint="leave set_headers, remove_headers, inject and limit to the policies of sandboxes",
            )
