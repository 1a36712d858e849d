"""``atoll docs``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option
from atoll.cli.output import note, show_json
from atoll.cli.pages import SECTIONS, Match, Page, matches, names_of, page_of, pages
from atoll.errors import InvalidSpecError
from atoll.exit_codes import ExitCode

_WIDEST = 100


def complete_topic(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of pages that begin with what was typed."""
    return sorted({page.name for page in pages() if page.name.startswith(incomplete)})


@click.command(name="docs", cls=Command)
@click.argument("topics", metavar="[TOPIC]", nargs=-1, shell_complete=complete_topic)
@click.option("--search", is_flag=True, help="List the pages that have all of the words given as TOPIC.")
@click.option("--web", is_flag=True, help="Serve all pages to a browser of this machine, until Ctrl-C.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of --web; default: a free one.")
@click.option("--no-browser", is_flag=True, help="With --web, only print the address.")
@json_option
def command(
    topics: tuple[str, ...], search: bool, web: bool, port: int, no_browser: bool, as_json: bool
) -> None:
    r"""Show a page of the documentation, which comes with atoll. Without TOPIC, list the pages.

    If the output is no terminal, it prints a page in Markdown. A search without a result exits with 1.

    \b
    Example:
      atoll docs
      atoll docs network
      atoll docs reference/errors
      atoll docs --search wake on data
      atoll docs --web
    """
    if search:
        _search([word for topic in topics for word in topic.split()], web=web, as_json=as_json)
        return
    page = _only_page(topics)
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


def _only_page(topics: Sequence[str]) -> Page | None:
    if len(topics) > 1:
        raise InvalidSpecError(
            f"{len(topics)} topics are given, and one page is shown at a time",
            hint=f"to find pages that have these words: `atoll docs --search {' '.join(topics)}`",
        )
    return page_of(topics[0]) if topics else None


def _search(words: Sequence[str], *, web: bool, as_json: bool) -> None:
    if web or not words:
        raise InvalidSpecError(
            "--search lists pages, and --web serves them" if web else "--search needs words",
            hint="give them after it: `atoll docs --search WORDS`",
        )
    found = matches(words)
    if as_json:
        show_json([{**_described(match.page), "line": match.line} for match in found])
    elif found:
        click.echo(found_shown(found))
    else:
        note(f"no page has {' and '.join(map(repr, words))}; `atoll docs` lists all pages")
    if not found:
        raise click.exceptions.Exit(ExitCode.ANSWER_IS_NO)


def found_shown(found: Sequence[Match]) -> str:
    """Return the found pages, each with its line below."""
    names = names_of(pages())
    widest = max(len(names[match.page.topic]) for match in found)
    return "\n".join(
        f"{names[match.page.topic].ljust(widest)}  {match.page.title}\n    {_shortened(match.line)}"
        for match in found
    )


def _shortened(line: str) -> str:
    return line if len(line) <= _WIDEST else f"{line[: _WIDEST - 3]}..."


def listed(every: list[Page]) -> str:
    """Return the list of pages by section. A page that an earlier one hides is listed with its directory."""
    lines = []
    names = names_of(every)
    widest = max(map(len, names.values()))
    for section in SECTIONS:
        lines.append(f"{section.replace('-', ' ').capitalize()}:")
        own = [page for page in every if page.section == section]
        lines += [f"  {names[page.topic].ljust(widest)}  {page.title}" for page in own]
        lines.append("")
    ways = "`atoll docs TOPIC` shows one, `atoll docs --search WORDS` finds some, `atoll docs --web` opens a browser."
    return "\n".join([*lines, ways])


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
