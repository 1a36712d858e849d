"""Whether every link of a built site leads somewhere in it, and whether it fetches anything from elsewhere."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

# What a browser fetches by itself, by element and attribute.
_FETCHED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src")}
_LINKS = {("a", "href"), *_FETCHED}


class Page(HTMLParser):
    """The links of a page, and the names that links may lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[str, bool]] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element links to."""
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.names.add(value)
            if (tag, name) in _LINKS and value:
                self.links.append((value, (tag, name) in _FETCHED))


def faults(site: Path) -> list[str]:
    """What is wrong with the links of the site."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        for link, fetched in page.links:
            if why := _fault(path, link, pages, fetched=fetched):
                found.append(f"{path.relative_to(site)}: {link}: {why}")
    return found


def _fault(path: Path, link: str, pages: dict[Path, Page], *, fetched: bool) -> str | None:
    if urlsplit(link).scheme or link.startswith("//"):
        return "is fetched from another host" if fetched else None
    if link.startswith("/"):
        return None if path.name == "404.html" else "begins at the root of a host"
    target, name = urldefrag(link)
    file = (path.parent / unquote(target)).resolve() if target else path
    if file.is_dir():
        file = file / "index.html"
    if not file.is_file():
        return "leads to nothing"
    if name and file in pages and unquote(name) not in pages[file].names:
        return "the page has no such heading"
    return None
