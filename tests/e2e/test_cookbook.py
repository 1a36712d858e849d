"""The recipes, and the examples for those who come from elsewhere, print what their pages say, and leave nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from atoll import Sandbox, Snapshots, Volumes

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [
    page
    for directory in ("cookbook", "coming-from")
    for page in sorted((DOCS / directory).glob("*.md"))
    if page.name != "README.md"
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_program_of_a_page_prints_what_the_page_says(
    page: Path, module_home: Path, tmp_path: Path
) -> None:
    text = re.sub(r"<!-- not run: .*? -->\n```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    code, output = re.findall(r"^```(?:python|text)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    before = _all()
    found_first = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PATH": found_first},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == output.strip()
    assert _all() == before


def _all() -> set[str]:
    """The ids of all that a program could leave behind."""
    return {
        *(info.sandbox_id for info in Sandbox.list()),
        *(info.snapshot_id for info in Snapshots.list()),
        *(info.volume_id for info in Volumes.list()),
    }


def test_the_index_of_the_cookbook_lists_every_recipe() -> None:
    listed = re.findall(
        r"^- \[[^]]+\]\(([\w-]+)\.md\)$", (DOCS / "cookbook/README.md").read_text(), re.MULTILINE
    )
    assert sorted(listed) == sorted(page.stem for page in PAGES if page.parent.name == "cookbook")
