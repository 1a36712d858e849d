"""Says in plain sentences where a sandbox may send something."""

from __future__ import annotations

from collections.abc import Sequence

from atoll.policy.internal import sandbox_ref
from atoll.types import Reach

_SHOWN = 4
_APPROVED = {1: ", each after a person has approved it", 2: ", each after two people have approved it"}


def reach_text(reach: Reach) -> str:
    """Return all of a reach as one sentence."""
    parts = [
        f"It sends {_subject(reach)} to {_place(reach)}",
        f", {ports}" if (ports := ports_text(reach.ports)) else "",
        f", with the secret {listed(reach.secrets)}" if reach.secrets else "",
        ", within a limit" if reach.limited else "",
        _APPROVED.get(reach.approvals, ""),
        f"; but {', and '.join(reach.unless)}" if reach.unless else "",
    ]
    return "".join(parts) + "."


def listed(texts: Sequence[str]) -> str:
    """Return a few texts in a row, with the number of those that are left out."""
    left = len(texts) - _SHOWN
    shown = ", ".join(texts[:_SHOWN])
    return f"{shown} and {left} more" if left > 0 else shown


def ports_text(ports: Sequence[str]) -> str:
    """Return ports in words; empty if it is every port."""
    if not ports:
        return ""
    return f"port {ports[0]}" if len(ports) == 1 and "-" not in ports[0] else f"ports {listed(ports)}"


def _subject(reach: Reach) -> str:
    if reach.methods:
        what = f"{listed(reach.methods)} requests"
    else:
        what = "requests of HTTP" if reach.inspected or reach.conditional else "anything over TCP"
    return f"{what} that meet more conditions" if reach.conditional else what


def _place(reach: Reach) -> str:
    if reach.kind == "public":
        return "every public name" if reach.hosts else "every public address, and names to nameservers"
    if reach.kind == "host":
        return "the host that it runs on"
    if reach.kind == "sandbox":
        refs = [sandbox_ref(host) or host for host in reach.hosts]
        return "every other sandbox of the same team" if "*" in refs else f"the sandbox {listed(refs)}"
    at = f" at {listed(reach.addresses)}" if reach.addresses else ""
    if reach.kind == "private":
        where = f"{listed(reach.hosts)}{at}" if reach.hosts else listed(reach.addresses)
        return f"{where}, which is not public"
    return f"{listed(reach.hosts)}{at}" if reach.hosts else listed(reach.addresses)
