"""The pages of the site, out of the Markdown of the repository: where each lies there, and what its links become."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from docsite.outline import PROJECT, START

_LINK = re.compile(r"(?P<text>\]\()(?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_FENCE = re.compile(r"^ *```.*?^ *```\n", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r"^ *<!-- not run: [^\n]* -->\n", re.MULTILINE)


def sources(root: Path) -> dict[str, Path]:
    """The pages that are written by hand: where each is on the site, and in the repository."""
    found = {START: root / "README.md"}
    found |= {name: root / name for name in PROJECT}
    docs = root / "docs"
    found |= {_place(path.relative_to(docs)): path for path in sorted(docs.rglob("*.md"))}
    return found


def _place(path: Path) -> str:
    """Where a page is on the site: what a directory shows is its index."""
    return (path.with_name("index.md") if path.name == "README.md" else path).as_posix()


def files(root: Path) -> dict[str, Path]:
    """What else of the repository pages link to, by where it is on the site."""
    docs = root / "docs"
    others = [path for path in sorted(docs.rglob("*")) if path.is_file() and path.suffix != ".md"]
    found = {path.relative_to(docs).as_posix(): path for path in others}
    targets = {
        (path.parent / match["target"]).resolve()
        for path in sources(root).values()
        for match in _LINK.finditer(_FENCE.sub("", path.read_text()))
        if "://" not in match["target"]
    }
    pages = {path.resolve() for path in sources(root).values()}
    for target in sorted(targets - pages):
        if target.is_file() and not target.is_relative_to(docs):
            # a page of the repository that is none of the site is shown as it is
            found[f"source/{target.relative_to(root).as_posix()}.txt"] = target
    return found


def page(name: str, source: Path, root: Path) -> str:
    """The text of a page, with links that lead to where things are on the site."""
    places = {path.resolve(): place for place, path in {**files(root), **sources(root)}.items()}

    def linked(match: re.Match[str]) -> str:
        target, anchor = match["target"], match["anchor"] or ""
        if "://" in target:
            return match[0]
        path = (source.parent / target).resolve()
        place = places.get(path)
        if place is None:
            raise SystemExit(f"docs: {source}: the link to {target} leads to nothing on the site")
        return f"{match['text']}{_relative(place, name)}{anchor})"

    text = _NOT_RUN.sub("", source.read_text())
    parts = re.split(r"(^ *```.*?^ *```\n)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if number % 2 else _LINK.sub(linked, part) for number, part in enumerate(parts))


def _relative(place: str, page_name: str) -> str:
    return PurePosixPath(os.path.relpath(place, PurePosixPath(page_name).parent)).as_posix()


def title_of(text: str) -> str:
    """A page's first heading."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"docs: a page has no title: {text[:60]!r}")
    return found[1].replace("`", "")


def lead_of(text: str) -> str:
    """The first sentence of a page's first paragraph, as plain text; empty if it has none."""
    for block in re.split(r"\n\s*\n", _FENCE.sub("", text)):
        if not re.match(r"[#|<>*-]|\d+\.|    |\s*$", block):
            plain = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", " ".join(block.split()))
            return re.split(r"(?<=[.!?:]) ", plain, maxsplit=1)[0]
    return ""
