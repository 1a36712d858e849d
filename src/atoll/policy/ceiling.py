"""A team's ceiling: what its sandboxes reach at most, whatever their own policies say.

A policy and a ceiling judge side by side. What passes must pass both, so neither can widen the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from atoll.errors import InvalidSpecError
from atoll.policy.check import check_policy
from atoll.policy.judge import Judge, Verdict, rule_name
from atoll.policy.presets import policy_of
from atoll.types import EgressPolicy, Policy, Rule

EVERYTHING = Policy(rules=(Rule(name="internet"),))
"""``internet`` as rules: every public address."""


def ceiling_of(network: EgressPolicy, registries: Iterable[str] = ()) -> Policy:
    """Return the rules of a ceiling. See ``policy_of``; ``internet`` has rules here.

    Raises:
        InvalidSpecError: It is neither a preset's name nor a policy.
    """
    rules = policy_of(network, registries)
    return EVERYTHING if rules is None else rules


def check_ceiling(ceiling: Policy) -> None:
    """Check a policy that is to be a ceiling. A ceiling decides, and does nothing else.

    Raises:
        InvalidSpecError: It is no valid policy, only observes, changes or limits requests, or has a proxy.
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
        if rule.changes:
            raise InvalidSpecError(
                f"{rule_name(ceiling, number)}: a ceiling changes and limits no requests",
                hint="leave set_headers, remove_headers, inject and limit to the policies of sandboxes",
            )


class BoundedJudge:
    """A policy under a ceiling, ready to decide. ``ceiling`` decides for itself alone.

    Args:
        policy: The sandbox's own policy; None is everything public.
        ceiling: The ceiling. Use ``check_ceiling`` first.
    """

    def __init__(self, policy: Policy | None, ceiling: Policy) -> None:
        self._own = Judge(EVERYTHING if policy is None else policy)
        self.ceiling = Judge(ceiling)

    def name(self, name: str) -> Verdict:
        """See ``Judge``: a name that either of them denies is not resolved."""
        return _both(self._own.name(name), self.ceiling.name(name))

    def knows_address(self, name: str, address: str) -> bool:
        """See ``Judge``."""
        return self._own.knows_address(name, address) and self.ceiling.knows_address(name, address)

    def proxied(self, name: str | None) -> bool:
        """See ``Judge``: only a policy has a proxy."""
        return self._own.proxied(name)

    def looks_into(self, name: str) -> bool:
        """See ``Judge``: what one of them passes through, the other may still want to look into."""
        return self._own.looks_into(name) or self.ceiling.looks_into(name)

    def connection(self, name: str | None, address: str | None, port: int) -> Verdict:
        """See ``Judge``: it is inspected if one of them wants that."""
        return _both(self._own.connection(name, address, port), self.ceiling.connection(name, address, port))


def _both(own: Verdict, ceiling: Verdict) -> Verdict:
    if own.action == "unplug":
        return own
    if ceiling.action == "unplug" or (ceiling.action == "deny" and own.action != "deny"):
        return replace(ceiling, ceiling=True, reason=f"the team's ceiling: {ceiling.reason}")
    if own.action == "deny":
        return own
    above = ceiling.deciding
    if "inspect" in (own.action, ceiling.action):
        return Verdict("inspect", kept=own.deciding, above=above)
    return replace(own, above=above)
