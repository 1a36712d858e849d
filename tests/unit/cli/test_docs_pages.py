"""The documentation that comes with atoll: its pages, and that what names one names one that is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.cli.__main__ import run
from atoll.cli.commands.docs import listed
from atoll.cli.docs_web import make_server
from atoll.cli.pages import directory, page_of, pages
from atoll.errors import NotFoundError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def address() -> Iterator[str]:
    with make_server(0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def fetched(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return str(answer.read().decode())


def test_every_page_of_the_repository_is_a_topic() -> None:
    assert {page.path for page in pages()} == set((ROOT / "docs").glob("*/*.md"))
    assert all(page.title for page in pages())
    assert len({page.topic for page in pages()}) == len(pages())


def test_a_topic_is_found_by_its_name_and_the_guide_comes_first() -> None:
    assert page_of("network").topic == "guide/network"
    assert page_of("design/network").topic == "design/network"
    assert page_of("docs/reference/errors.md").topic == "reference/errors"
    assert page_of("cookbook").title == "Cookbook"


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("netwrk", "did you mean `atoll docs network`?"),
        ("wake_on_data", "these mention it: "),
        ("nonsense-of-a-page", "lists all pages"),
    ],
)
def test_a_topic_that_is_no_page_is_answered_with_what_is_near(topic: str, said: str) -> None:
    with pytest.raises(NotFoundError) as raised:
        page_of(topic)
    assert said in str(raised.value.hint_for("cli"))


def test_the_list_names_each_page_in_a_way_that_finds_it() -> None:
    names = re.findall(r"^  (\S+)  ", listed(pages()), re.MULTILINE)
    assert [page_of(name) for name in names] == pages()


def test_a_page_is_printed_without_what_is_only_for_tests(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docs", "mcp"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("# Computers for a model: MCP\n")
    assert "<!--" not in said


def test_pages_are_told_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docs", "--json"]) == 0
    every = json.loads(capsys.readouterr().out)
    assert {"topic": "guide/network", "title": "What a sandbox may reach"} in every
    assert run(["docs", "network", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"].startswith("# What a sandbox may reach")


def test_a_search_lists_the_pages_that_have_all_of_the_words_in_any_case(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["docs", "--search", "WAKE", "on-data"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) % 2 == 0
    assert "wake" in said[1].lower() and "on-data" in said[1].lower()
    for line in said[::2]:
        text = page_of(line.split()[0]).text.lower()
        assert "wake" in text and "on-data" in text


def test_what_a_search_finds_is_told_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docs", "--search", "what a sandbox may", "reach", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {
        "topic": "guide/network",
        "title": "What a sandbox may reach",
        "line": "# What a sandbox may reach",
    } in found
    assert all(set(each) == {"topic", "title", "line"} for each in found)


def test_a_search_without_a_result_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docs", "--search", "nonsense-of-a-word"]) == 1
    said = capsys.readouterr()
    assert said.out == "" and "no page has 'nonsense-of-a-word'" in said.err
    assert run(["docs", "--search", "nonsense-of-a-word", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--search"], "--search needs words"),
        (["--search", "network", "--web"], "--search lists pages, and --web serves them"),
        (["wake", "data"], "`atoll docs --search wake data`"),
    ],
)
def test_a_search_that_cannot_be_meant_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["docs", *arguments]) == 125
    assert said in capsys.readouterr().err


def test_a_terminal_gets_a_drawn_page() -> None:
    code = (
        "import sys; sys.stdout.isatty = lambda: True\n"
        "from atoll.cli.__main__ import run\n"
        "run(['docs', 'reference/glossary'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )
    assert "Glossary" in done.stdout and "# Glossary" not in done.stdout, done.stderr


def test_the_pages_are_served_with_their_links(address: str) -> None:
    body = fetched(f"{address}/reference/errors.md")
    assert "<table>" in body and 'id="by-code"' in body
    for page in pages():
        assert f'href="{page.address}"' in body
    targets = re.findall(r'href="([^"#:]+\.md)', fetched(f"{address}/guide/limits.md"))
    assert targets
    assert "First steps" in fetched(address)


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/../pyproject.toml", "/guide/%2e%2e/%2e%2e/README.md", "/guide/"]
)
def test_nothing_else_is_served(address: str, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as raised:
        fetched(address + path)
    assert raised.value.code == 404
    raised.value.close()


def test_every_page_that_an_error_or_a_help_names_is_there() -> None:
    named = [
        (path.name, topic)
        for path in (ROOT / "src/atoll").rglob("*.py")
        for topic in re.findall(r"`?\batoll docs ([a-z][\w/-]*)", path.read_text())
    ]
    assert len(named) >= 5
    for place, topic in named:
        assert page_of(topic), place


def test_no_error_names_a_file_that_a_wheel_does_not_have() -> None:
    for path in (ROOT / "src/atoll").rglob("*.py"):
        hints = re.findall(r"(?:hint|remedy)=f?[\"'][^\"']*", path.read_text())
        assert [hint for hint in hints if ".md" in hint or "the guide" in hint] == [], path


def test_a_wheel_gets_the_pages_and_an_editable_one_reads_those_of_the_checkout() -> None:
    assert directory() == ROOT / "docs"
    hook = (ROOT / "hatch_build.py").read_text()
    assert 'build_data["force_include"][str(root / "docs")] = "atoll/_docs"' in hook
    assert '"/docs"' in (ROOT / "pyproject.toml").read_text()
