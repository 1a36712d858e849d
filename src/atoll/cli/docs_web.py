"""Serves the pages of the documentation to a browser of this machine."""

from __future__ import annotations

import html
import re
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from atoll.cli.pages import SECTIONS, Page, pages

_STYLE = """
body { display: flex; margin: 0; font: 16px/1.6 system-ui, sans-serif; color: #1c1e21; background: #fff }
nav { flex: 0 0 16rem; height: 100vh; overflow: auto; position: sticky; top: 0; padding: 1rem; background: #f4f5f7;
  box-sizing: border-box; font-size: 14px }
nav ul { list-style: none; padding: 0 } nav b { text-transform: capitalize }
main { max-width: 52rem; padding: 1rem 2.5rem 4rem; min-width: 0 }
pre { overflow: auto; padding: .8rem; background: #f4f5f7 } code { font: 14px/1.5 ui-monospace, monospace }
table { border-collapse: collapse; display: block; overflow: auto } th, td { border: 1px solid #d4d7dc;
  padding: .35rem .6rem; text-align: left; vertical-align: top } a { color: #0b5cad }
@media (prefers-color-scheme: dark) { body { color: #e4e6eb; background: #18191c } nav, pre { background: #222428 }
  th, td { border-color: #3a3d42 } a { color: #7ab8ff } }
@media (max-width: 60rem) { body { display: block } nav { position: static; height: auto } }
"""


def shown(page: Page, every: list[Page]) -> str:
    """Return a page as HTML, with links to all others."""
    body = _with_anchors(_markdown(page.text))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(page.title)} - atoll</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><nav>{_navigation(every)}</nav><main>{body}</main></body></html>"
    )


def make_server(port: int) -> ThreadingHTTPServer:
    """Return a server on the loopback interface; port 0 is a free one."""
    every = pages()
    known = {page.address: page for page in every}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802  # the name is http.server's
            path = unquote(urlsplit(self.path).path)
            page = known.get("/guide/first-steps.md" if path == "/" else path)
            if page is None:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            body = shown(page, every).encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is http.server's
            del format, args

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def _markdown(text: str) -> str:
    # rich renders with it, so it is there
    from markdown_it import MarkdownIt

    return str(MarkdownIt("commonmark", {"html": False}).enable("table").render(text))


def _with_anchors(body: str) -> str:
    """Give headings the ids that links between pages use."""

    def named(found: re.Match[str]) -> str:
        words = html.unescape(re.sub(r"<[^>]+>", "", found[2])).lower()
        anchor = re.sub(r"[^\w-]+", "-", re.sub(r"[^\w\s-]", "", words)).strip("-")
        return f'<h{found[1]} id="{html.escape(anchor, quote=True)}">{found[2]}</h{found[1]}>'

    return re.sub(r"<h([1-4])>(.*?)</h\1>", named, body)


def _navigation(every: list[Page]) -> str:
    return "".join(
        f"<b>{section.replace('-', ' ')}</b><ul>"
        + "".join(
            f'<li><a href="{page.address}">{html.escape(page.title)}</a></li>'
            for page in every
            if page.section == section
        )
        + "</ul>"
        for section in SECTIONS
    )
