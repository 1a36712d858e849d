"""Builds the site: python -m docsite OUTPUT_DIRECTORY. Strict: a warning is a failure, and so is a link to nowhere."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config

from atoll.version import __version__
from docsite import links
from docsite.commands import commands_page
from docsite.outline import outline
from docsite.pages import files, lead_of, page, sources, title_of
from docsite.sdk import sdk_page, types_page

ROOT = Path(__file__).resolve().parents[2]
STYLE = Path(__file__).with_name("extra.css")
ABOUT = "A whole persistent computer for every AI agent: it sleeps, wakes where it left off, forks and rolls back."


def main() -> int:
    output = Path(sys.argv[1]).resolve()
    os.environ.setdefault("SOURCE_DATE_EPOCH", _epoch())
    texts = {name: page(name, source, ROOT) for name, source in sources(ROOT).items()}
    texts |= {
        "reference/commands.md": commands_page(),
        "reference/sdk.md": sdk_page(),
        "reference/types.md": types_page(),
    }
    with tempfile.TemporaryDirectory(prefix="atoll-docs-") as work:
        staged, made = Path(work) / "docs", Path(work) / "site"
        for name, text in texts.items():
            _write(staged / name, text)
        for name, source in files(ROOT).items():
            _write(staged / name, source.read_text())
        _write(staged / STYLE.name, STYLE.read_text())
        _build(staged, made, texts)
        # for readers that are programs: each page's Markdown beside it, and a list of all
        for name, text in texts.items():
            _write(made / name, text)
        _write(made / "llms.txt", _listed(texts))
        found = links.faults(made)
        for fault in found:
            print(f"docs: {fault}", file=sys.stderr)
        if found:
            return 1
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(made, output)
    print(f"docs: {len(texts)} pages; to read them: python3 -m http.server -d {output}", file=sys.stderr)
    return 0


def _build(staged: Path, made: Path, texts: dict[str, str]) -> None:
    logging.basicConfig(level=logging.WARNING, format="docs: %(message)s")
    config = load_config(
        str(Path(__file__).with_name("mkdocs.yml")),
        docs_dir=str(staged),
        site_dir=str(made),
        site_description=ABOUT,
        nav=outline(texts),
        strict=True,
    )
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    config.plugins.on_shutdown()


def _listed(texts: dict[str, str]) -> str:
    """The list of pages that programs read first, see llmstxt.org."""
    lines = [f"# atoll {__version__}\n", f"> {ABOUT}\n"]
    for entry in outline(texts):
        if isinstance(entry, str):
            lines.append(f"- [{title_of(texts[entry])}]({entry}): {lead_of(texts[entry])}")
            continue
        for heading, pages in entry.items():
            lines.append(f"\n## {heading}\n")
            lines += [f"- [{title_of(texts[name])}]({name}): {lead_of(texts[name])}" for name in pages]
    return "\n".join(line.removesuffix(": ") for line in lines) + "\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _epoch() -> str:
    """The time of the last commit, so that the same sources give the same bytes."""
    said = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "log", "-1", "--format=%ct"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return said.stdout.strip() or "315532800"


if __name__ == "__main__":
    sys.exit(main())
