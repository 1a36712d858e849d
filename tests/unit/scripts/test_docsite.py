"""How the documentation's site is made of the repository; `make docs` builds all of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import atoll.sdk
from atoll.cli.atoll import COMMANDS
from docsite.commands import commands_page
from docsite.docstrings import markdown_of
from docsite.links import faults
from docsite.outline import outline
from docsite.pages import lead_of, page, sources, title_of
from docsite.sdk import sdk_page, types_page

ROOT = Path(__file__).parents[3]
DOCSTRING = """Return ``n`` reefs.

    They are new::

        reefs(3)

    Args:
        n: How many,
            1 or more.
        *names: Their names.

    Raises:
        QuotaError: Too many.
    """


def test_every_page_is_in_the_outline_once_also_one_that_it_does_not_name() -> None:
    pages = [*sources(ROOT), "guide/a-page-of-tomorrow.md"]
    listed = [
        name
        for entry in outline(pages)
        for name in ([entry] if isinstance(entry, str) else next(iter(entry.values())))
    ]
    assert sorted(listed) == sorted(pages)


def test_every_page_has_a_title_and_links_that_lead_to_the_site() -> None:
    for name, source in sources(ROOT).items():
        text = page(name, source, ROOT)
        assert title_of(text)
        assert "<!-- not run" not in text
        assert "](docs/" not in text


def test_the_lead_of_a_page_is_its_first_sentence_without_links_and_code() -> None:
    text = "# Reefs\n\n```sh\nreef\n```\n\nA [reef](x.md) is\nlong. It grows.\n"
    assert lead_of(text) == "A reef is long."
    assert lead_of("# Reefs\n\n- a list\n") == ""


def test_a_docstring_becomes_paragraphs_and_lists() -> None:
    assert markdown_of(DOCSTRING).split("\n\n") == [
        "Return `n` reefs.",
        "They are new:",
        "    reefs(3)",
        "**Args**",
        "- `n`: How many, 1 or more.\n- `*names`: Their names.",
        "**Raises**",
        "- `QuotaError`: Too many.",
    ]


def test_the_reference_has_every_command_every_class_and_no_private_name() -> None:
    commands, sdk, types = commands_page(), sdk_page(), types_page()
    assert [name for name in COMMANDS if f"### atoll {name}\n" not in commands] == []
    names = [name for name in atoll.sdk.__all__ if not name.startswith("Async")] + atoll.types.__all__
    text = sdk + types
    assert [name for name in names if f"\n## {name}\n" not in text and f"\n{name} = " not in text] == []
    assert "### Sandbox.create\n" in sdk
    assert "```python\nget(name: str" in sdk
    assert "-> _" not in sdk
    assert ": _" not in types
    assert "ForwardRef" not in text and "<class" not in text


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ('<a href="b.html#reef">x</a>', []),
        ('<a href="https://example.com/">x</a>', []),
        ('<a href="c.html">x</a>', ["a.html: c.html: leads to nothing"]),
        ('<a href="b.html#sand">x</a>', ["a.html: b.html#sand: the page has no such heading"]),
        ('<a href="/b.html">x</a>', ["a.html: /b.html: begins at the root of a host"]),
        (
            '<script src="https://example.com/x.js"></script>',
            ["a.html: https://example.com/x.js: is fetched from another host"],
        ),
    ],
)
def test_links_of_the_site_lead_somewhere_and_fetch_nothing_from_elsewhere(
    tmp_path: Path, body: str, found: list[str]
) -> None:
    (tmp_path / "a.html").write_text(body)
    (tmp_path / "b.html").write_text('<h2 id="reef">Reef</h2>')
    assert faults(tmp_path) == found


def test_a_code_in_a_table_is_not_broken_inside_a_word() -> None:
    place = ROOT / "scripts/docsite"
    assert "extra_css: [extra.css]" in (place / "mkdocs.yml").read_text()
    rule = re.search(r"\.md-typeset td code.*?\{(.*?)\}", (place / "extra.css").read_text(), re.DOTALL)
    assert rule is not None
    assert "word-break: normal" in rule[1] and "overflow-wrap: normal" in rule[1]
