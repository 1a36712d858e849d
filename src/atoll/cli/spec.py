"""Turns command line options into a new sandbox's parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from atoll.cli.limit_options import limits


def pairs(given: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Return the pairs as a mapping. The last value of a key counts."""
    return dict(given)


def wanted(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for ``Sandbox.create``."""
    return {
        "image": options["image"],
        "start": options["start"] or None,
        "name": options["name"],
        "env": dict(options["env"]),
        "metadata": dict(options["metadata"]),
        "network": options["network"],
        "from_snapshot": options["from_snapshot"],
        "template": options["template"],
        "limits": limits(options),
        "best_effort": options["best_effort"],
        "on_crash": options["on_crash"],
        "team": options["team"],
        "volumes": options["volumes"],
        "ports": options["ports"],
        "within_s": options["within_s"],
    }
