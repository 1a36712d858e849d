"""Turns command line options into a new sandbox's parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from atoll.cli.delegation_options import delegation
from atoll.cli.limit_options import limits
from atoll.cli.model_options import model_access
from atoll.types import Boot, Hosting
from atoll.types.internal import one_source


def pairs(given: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Return the pairs as a mapping. The last value of a key counts."""
    return dict(given)


def wanted(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for ``Sandbox.create``, except the lifecycle and the wait.

    Raises:
        InvalidSpecError: More than one thing to start from is given.
    """
    return {
        "source": one_source(
            image=options["image"], template=options["template"], snapshot=options["from_snapshot"]
        ),
        "name": options["name"],
        "env": dict(options["env"]),
        "metadata": dict(options["metadata"]),
        "network": options["network"],
        "limits": limits(options),
        "volumes": options["volumes"],
        "boot": Boot(
            start=options["start"] or None,
            on_crash=options["on_crash"],
            best_effort=options["best_effort"],
        ),
        "hosting": Hosting(
            team=options["team"],
            ports=options["ports"],
            delegation=delegation(options),
            models=model_access(options),
        ),
    }
