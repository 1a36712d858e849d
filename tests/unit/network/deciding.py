"""Asks the egress of a guest about connections to addresses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from atoll.network.egress import Egress, Outside
from atoll.network.names import NameTable
from atoll.network.resolver import Resolver
from atoll.policy import policy_of
from atoll.types import EgressPolicy


def nowhere(_: str) -> bool:
    return False


def egress_for(network: EgressPolicy, *, is_own: Callable[[str], bool] = nowhere) -> Egress:
    """The egress of a guest with this policy, which knows no names."""
    egress = Egress(NameTable(Path("/nonexistent/names")), Outside(Resolver(list), is_own))
    egress.set(policy_of(network))
    return egress


def decide(
    network: EgressPolicy, address: str, port: int, *, is_own: Callable[[str], bool] = nowhere
) -> str | None:
    """Why a connection is refused, or None."""
    egress = egress_for(network, is_own=is_own)
    verdict = egress.at_once(egress.destination(address, port))
    assert verdict is not None
    return None if verdict.action == "allow" else verdict.reason or verdict.action
