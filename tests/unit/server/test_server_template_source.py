"""What a client is told of a template that it cannot start from."""

from __future__ import annotations

import asyncio
from unittest.mock import AsyncMock, patch

import pytest

from atoll.errors import TemplateNotFoundError
from atoll.sdk import AsyncTemplates
from atoll.server.e2b.template_source import missing_source
from atoll.types import TemplateInfo


def template(name: str, team: str | None, *, public: bool) -> TemplateInfo:
    return TemplateInfo(
        template_id="t1",
        name=name,
        team=team,
        public=public,
        created_at=0.0,
        changed_at=0.0,
        tags={},
        builds=[],
    )


def said(ref: str, found: TemplateInfo | None) -> str:
    answer = AsyncMock(return_value=found) if found else AsyncMock(side_effect=TemplateNotFoundError("none"))
    with patch.object(AsyncTemplates, "get", answer):
        return asyncio.run(missing_source(ref)).message


def test_a_template_of_the_operator_that_is_not_public_is_told_with_the_command_that_shares_it() -> None:
    for ref in ("work-v1", "work-v1:default"):
        assert said(ref, template("work-v1", None, public=False)) == (
            f"template '{ref}' not found: the operator has it, and shares it with `atoll template publish work-v1`"
        )


@pytest.mark.parametrize(
    ("ref", "found"),
    [
        ("work-v1", None),
        ("crew/work-v1", template("work-v1", "crew", public=False)),
        ("t1", template("work-v1", "crew", public=False)),
        ("t1", template("work-v1", None, public=False)),
    ],
)
def test_nothing_is_told_of_other_teams_templates_nor_by_an_id(ref: str, found: TemplateInfo | None) -> None:
    assert said(ref, found) == f"template '{ref}' not found"
