"""The sandbox at the moment of a run.

Its kernels may be from the template's build, or from another sandbox.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

_ENVIRONMENT = Path("/run/atoll/environment.json")
_MACHINE_ID = Path("/etc/machine-id")


@dataclass(frozen=True)
class Surroundings:
    """The variables and the identity of the sandbox.

    Args:
        environment: The variables that the sandbox was made with.
        machine_id: It differs in each copy of a sandbox.
    """

    environment: dict[str, str]
    machine_id: str

    @classmethod
    def read(cls) -> Surroundings:
        """Read them."""
        return cls(_environment(), _machine_id())


def _environment() -> dict[str, str]:
    try:
        found = json.loads(_ENVIRONMENT.read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _machine_id() -> str:
    try:
        return _MACHINE_ID.read_text()
    except (OSError, ValueError):
        return ""
