"""Pages of lists of templates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.listing import limit_of
from atoll.types import TemplateInfo


def page_of(infos: Iterable[TemplateInfo], asked: Mapping[str, str]) -> tuple[list[TemplateInfo], str | None]:
    """Return a page of templates, newest first, and the token of the next page: the id of the last one shown.

    Raises:
        Refusal: The limit or the token is invalid (400).
    """
    limit, token = limit_of(asked), asked.get("nextToken")
    found = sorted(infos, key=lambda info: (info.created_at, info.template_id), reverse=True)
    if token:
        places = [index for index, info in enumerate(found) if info.template_id == token]
        if not places:
            raise Refusal(400, "nextToken must come from the previous page")
        found = found[places[0] + 1 :]
    shown = found[:limit]
    return shown, shown[-1].template_id if len(found) > limit else None
