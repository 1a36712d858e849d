"""Snapshots as E2B's clients ask for them."""

from __future__ import annotations

import pytest

from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.snapshots import Name, name_of, page_of, query_of
from atoll.types import BuildInfo, TagInfo, TemplateInfo


def template(number: int, *, name: str | None = None, sandbox: str | None = "s1") -> TemplateInfo:
    build = BuildInfo(
        build_id=f"b{number}",
        template_id=f"t{number}",
        state="ready",
        created_at=float(number),
        changed_at=float(number),
        snapshot_id=f"n{number}",
        sandbox_id=sandbox,
    )
    return TemplateInfo(
        template_id=f"t{number}",
        name=name,
        team="crew",
        public=False,
        created_at=float(number),
        changed_at=float(number),
        tags={"default": TagInfo(build_id=f"b{number}", created_at=float(number))},
        builds=[build],
    )


TEMPLATES = [template(1, name="web"), template(2), template(3, sandbox="s2"), template(4, sandbox=None)]


def found(**asked: str) -> list[str]:
    page, _ = page_of(TEMPLATES, query_of(asked, "crew"), "crew")
    return [one.snapshot_id for one in page]


def test_only_what_was_taken_of_a_sandbox_is_a_snapshot_and_the_newest_comes_first() -> None:
    assert found() == ["t3:default", "t2:default", "crew/web:default"]


def test_snapshots_are_found_by_sandbox_and_by_name() -> None:
    assert found(sandboxID="s2") == ["t3:default"]
    for name in ("web", "web:default", "crew/web", "Crew/Web:default"):
        assert found(name=name) == ["crew/web:default"]
    for name in ("other", "web:v2", "others/web"):
        assert found(name=name) == []


def test_pages_have_each_snapshot_once() -> None:
    seen: list[str] = []
    token: str | None = ""
    while token is not None:
        page, token = page_of(TEMPLATES, query_of({"limit": "1", "nextToken": token}, "crew"), "crew")
        seen += [one.snapshot_id for one in page]
    assert seen == found()


def test_a_name_is_the_teams_own_however_it_is_written() -> None:
    assert name_of(" Web ", "crew") == Name("web", "default")
    assert name_of("crew/web:v1.2", "crew") == Name("web", "v1.2")
    for name in ("others/web", "a b", "../x", "web:", "web:a/b", "", "x" * 200):
        with pytest.raises(Refusal):
            name_of(name, "crew")
