"""``atoll docs``."""

from __future__ import annotations

import sys

import click

from atoll.cli.lazy import Command
from atoll.cli.options import json_option
from atoll.cli.output import note, show_json
from atoll.cli.pages import SECTIONS, Page, page_of, pages
from atoll.errors import InvalidSpecError

_WIDEST = 100


def complete_topic(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of pages that begin with what was typed."""
    return sorted({page.name for page in pages() if page.name.startswith(incomplete)})


@click.command(name="docs", cls=Command)
@click.argument("topic", metavar="[TOPIC]", required=False, shell_complete=complete_topic)
@click.option("--web", is_flag=True, help="Serve all pages to a browser of this machine, until Ctrl-C.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of --web; default: a free one.")
@click.option("--no-browser", is_flag=True, help="With --web, only print the address.")
@json_option
def command(topic: str | None, web: bool, port: int, no_browser: bool, as_json: bool) -> None:
    r"""Show a page of the documentation, which comes with atoll. Without TOPIC, list the pages.

    Where the output is no terminal, a page is printed in Markdown.

    \b
    Example:
      atoll docs
      atoll docs network
      atoll docs reference/errors
      atoll docs --web
    """
    page = None if topic is None else page_of(topic)
    if web:
        if as_json:
            raise InvalidSpecError("--web serves pages and prints no result", hint="leave out --json")
        _serve(page, port, browse=not no_browser)
    elif as_json:
        show_json(
            [_described(each) for each in pages()]
            if page is None
            else {**_described(page), "text": page.text}
        )
    elif page is None:
        click.echo(listed(pages()))
    else:
        _show(page)


def listed(every: list[Page]) -> str:
    """Return the list of pages by section. A page that an earlier one hides is listed with its directory."""
    lines, seen = [], set[str]()
    names = {}
    for page in every:
        names[page.topic] = page.topic if page.name in seen else page.name
        seen.add(page.name)
    widest = max(map(len, names.values()))
    for section in SECTIONS:
        lines.append(f"{section.replace('-', ' ').capitalize()}:")
        own = [page for page in every if page.section == section]
        lines += [f"  {names[page.topic].ljust(widest)}  {page.title}" for page in own]
        lines.append("")
    return "\n".join([*lines, "`atoll docs TOPIC` shows one, `atoll docs --web` all in a browser."])


def _described(page: Page) -> dict[str, str]:
    return {"topic": page.topic, "title": page.title}


def _show(page: Page) -> None:
    if not sys.stdout.isatty():
        click.echo(page.text, nl=False)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    console.width = min(console.width, _WIDEST)
    with console.capture() as drawn:
        console.print(Markdown(page.text, hyperlinks=False))
    click.echo_via_pager(drawn.get())


def _serve(page: Page | None, port: int, *, browse: bool) -> None:
    from atoll.cli.docs_web import make_server

    try:
        server = make_server(port)
    except OSError as error:
        raise InvalidSpecError(
            f"port {port} of this machine cannot be used: {error.strerror}",
            hint="give another --port, or none",
        ) from None
    with server:
        address = f"http://127.0.0.1:{server.server_port}{page.address if page else '/'}"
        click.echo(address)
        if browse:
            click.launch(address)
        note("Ctrl-C ends it")
        server.serve_forever()
