# Made by scripts/unasync.py from sdk/_async/resolving.py: do not edit.
"""What the name of a template stands for."""

from __future__ import annotations

from atoll.sdk._sync.api import Api, ref
from atoll.types import Resolved


def resolved(api: Api, template: str, team: str | None) -> Resolved:
    """What a sandbox of ``NAME`` or ``NAME:TAG`` starts from.

    Raises:
        TemplateNotFoundError: There is no such template, or it has no such tag.
    """
    return api.call("GET", f"/v1/resolved{of_team(team, ref=template)}", Resolved)


def of_team(team: str | None, **more: str) -> str:
    """The query of a path that asks for what a team has, with more to ask for."""
    values = {**more, **({"team": team} if team is not None else {})}
    return f"?{'&'.join(f'{name}={ref(value)}' for name, value in values.items())}" if values else ""
