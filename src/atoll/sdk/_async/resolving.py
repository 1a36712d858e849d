"""Resolves the names of templates."""

from __future__ import annotations

from atoll.sdk._async.api import AsyncApi, ref
from atoll.types import Resolved


async def resolved(api: AsyncApi, template: str, team: str | None) -> Resolved:
    """Return the snapshot or image from which a sandbox of ``NAME`` or ``NAME:TAG`` starts.

    Raises:
        TemplateNotFoundError: There is no such template, or it has no such tag.
    """
    return await api.call("GET", f"/v1/resolved{of_team(team, ref=template)}", Resolved)


def of_team(team: str | None, **more: str) -> str:
    """Return the query of a path that asks for a team's own, and for ``more``."""
    values = {**more, **({"team": team} if team is not None else {})}
    return f"?{'&'.join(f'{name}={ref(value)}' for name, value in values.items())}" if values else ""
