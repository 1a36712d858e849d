"""Policies with a name."""

from __future__ import annotations

from collections.abc import Iterable

from atoll.types import EgressPolicy, Policy, Rule
from atoll.types.internal import check_network

_READ = ("GET", "HEAD")
_NOTHING = Policy()
_WEB_READ_ONLY = Policy(
    rules=(Rule(name="web-read-only", hosts=("*",), protocol="http", methods=_READ),),
)


def policy_of(network: EgressPolicy, registries: Iterable[str] = ()) -> Policy | None:
    """Return the rules of a preset, or the policy itself. None stands for ``internet``: everything public.

    Args:
        network: The preset's name, or a policy.
        registries: The hosts of package registries, for ``packages``.

    Raises:
        InvalidSpecError: ``network`` is neither a preset's name nor a policy.
    """
    check_network(network)
    if isinstance(network, Policy):
        return network
    if network == "internet":
        return None
    if network == "none":
        return _NOTHING
    if network == "web-read-only":
        return _WEB_READ_ONLY
    hosts = tuple(sorted(registries))
    if not hosts:
        return _NOTHING
    return Policy(rules=(Rule(name="packages", hosts=hosts, protocol="http", methods=_READ),))
