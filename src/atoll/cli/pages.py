"""The pages of the documentation, which come with atoll."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import atoll
from atoll.errors import HostError, NotFoundError

SECTIONS = ("guide", "reference", "cookbook", "coming-from", "design")
"""The directories of pages. If two have a page of the same name, the name means the first one's."""

_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)
_MOST_MENTIONS = 8
_CLOSE = 0.75


@dataclass(frozen=True)
class Page:
    """A page.

    Args:
        topic: Its directory and its name, as ``guide/network``; the directory alone for its first page.
        path: The file, in Markdown.
    """

    topic: str
    path: Path

    @property
    def name(self) -> str:
        """Its name without the directory."""
        return self.topic.rpartition("/")[2]

    @property
    def address(self) -> str:
        """Its path on the web, at which the links of other pages find it."""
        return f"/{self.section}/{self.path.name}"

    @property
    def section(self) -> str:
        """Its directory."""
        return self.topic.partition("/")[0]

    @property
    def text(self) -> str:
        """The page in Markdown, without comments."""
        return _COMMENT.sub("", self.path.read_text("utf-8"))

    @property
    def title(self) -> str:
        """Its heading."""
        return self.text.partition("\n")[0].removeprefix("# ").replace("`", "")


def directory() -> Path:
    """Return where the pages are: beside atoll's modules, or in the checkout that it runs from.

    Raises:
        HostError: This installation has none.
    """
    package = Path(atoll.__file__).parent
    for place in (package / "_docs", package.parents[1] / "docs"):
        if (place / SECTIONS[0]).is_dir():
            return place
    raise HostError("this installation has no documentation", hint="install atoll again, from its wheel")


def pages() -> list[Page]:
    """Return all pages, by section and name."""
    place = directory()
    return [
        Page(section if path.stem == "README" else f"{section}/{path.stem}", path)
        for section in SECTIONS
        for path in sorted((place / section).glob("*.md"))
    ]


@dataclass(frozen=True)
class Match:
    """A page that has all the words of a search, and its line that has the most of them."""

    page: Page
    line: str


def matches(words: Sequence[str]) -> list[Match]:
    """Return the pages that have all of these words, in any case; first those with more of them in one line."""
    wanted = [word.lower() for word in words]
    found = []
    for page in pages():
        lines = [line.strip() for line in page.text.splitlines()]
        if all(any(word in line.lower() for line in lines) for word in wanted):
            # of lines that have as many, the first one
            line = max(lines, key=lambda each: _count(wanted, each))
            found.append((_count(wanted, line), Match(page, line)))
    return [match for _, match in sorted(found, key=lambda each: -each[0])]


def _count(words: Sequence[str], line: str) -> int:
    return sum(word in line.lower() for word in words)


def names_of(every: Sequence[Page]) -> dict[str, str]:
    """Return by topic what finds each page: its name, or its topic if an earlier page has the name."""
    names, seen = {}, set[str]()
    for page in every:
        names[page.topic] = page.topic if page.name in seen else page.name
        seen.add(page.name)
    return names


def page_of(topic: str) -> Page:
    """Return the page of a topic: its name, with or without the directory.

    Raises:
        NotFoundError: There is none. The hint names pages with a similar name or with this word.
    """
    every = pages()
    wanted = topic.strip("/").removesuffix(".md").removeprefix("docs/").lower()
    found = next((page for page in every if wanted in (page.topic, page.name)), None)
    if found is not None:
        return found
    close = get_close_matches(wanted, [page.name for page in every], 3, _CLOSE)
    mention = [page.topic for page in every if wanted and wanted in page.text.lower()][:_MOST_MENTIONS]
    if close:
        hint = f"did you mean {' or '.join(f'`atoll docs {name}`' for name in dict.fromkeys(close))}?"
    elif mention:
        hint = f"these mention it: {', '.join(mention)}"
    else:
        hint = "`atoll docs` lists all pages, and `atoll docs --search WORDS` searches them"
    raise NotFoundError(f"no page is called {topic!r}", hint=hint)
