"""Egress policies on the command line."""

from __future__ import annotations

from atoll.types import EgressPolicy, Policy


def network_shown(network: EgressPolicy) -> str:
    """A policy in a few words."""
    if not isinstance(network, Policy):
        return network
    count = len(network.rules)
    rules = "no rule" if not count else "1 rule" if count == 1 else f"{count} rules"
    return f"a policy of {rules}{', only observed' if network.mode == 'observe' else ''}"
