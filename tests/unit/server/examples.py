"""Sandboxes that are not there."""

from __future__ import annotations

import msgspec

from atoll.types import Limits, SandboxInfo


def sandbox(
    number: int, *, state: str = "running", started_at: float | None = None, **more: object
) -> SandboxInfo:
    values = {
        "sandbox_id": f"a{number:019d}",
        "name": None,
        "image": "base",
        "state": state,
        "created_at": 1000.0 + number,
        "changed_at": 2000.0,
        "env": {},
        "metadata": {},
        "network": "internet",
        "limits": Limits(),
        "user": "user",
        "cwd": "/home/user",
        "started_at": 1000.0 + number if started_at is None else started_at,
        **more,
    }
    return msgspec.convert(values, SandboxInfo)
