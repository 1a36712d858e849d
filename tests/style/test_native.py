"""READMEs of our changes to gVisor: the table has them all, and the tests that they name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import atoll.testing

ROOT = Path(__file__).parents[2]
READMES = sorted(ROOT.glob("native/patches/*/README.md"))
GO_TESTS = {path.name for path in ROOT.glob("native/overlay/**/*_test.go")}
SERIES = (ROOT / "native/patches/series").read_text().split()
# A row of native/README.md: the feature, what it does, what it gives, and the first words of its README on upstream.
_ROW = re.compile(r"^\| \[([\w-]+)\]\(patches/\1/README\.md\) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
_UPSTREAM = re.compile(r"^- Upstream: (.+)", re.MULTILINE)
_TESTS = re.compile(r"^- Tests: (.+?)(?=^- |\Z)", re.MULTILINE | re.DOTALL)
_CITED = re.compile(r"(?:[\w-]+/)+[\w.-]*\w|\w+_test\.go|\btest_\w+\.py|python -m [\w.]+\w|\w+Conformance\b")


def missing(tests: str) -> list[str]:
    """What is cited and not in the tree. A test without a directory is in that of the one before it."""
    directory = ROOT / "tests"
    absent = []
    for cited in _CITED.findall(tests):
        if "/" in cited:
            found = (ROOT / cited).exists()
            directory = (ROOT / cited).parent
        elif cited.endswith("_test.go"):
            found = cited in GO_TESTS
        elif cited.endswith("Conformance"):
            found = hasattr(atoll.testing, cited)
        elif cited.startswith("python -m "):
            module = ROOT / cited.split()[-1].replace(".", "/")
            found = module.with_suffix(".py").is_file() or (module / "__main__.py").is_file()
        else:
            found = (directory / cited).is_file()
        if not found:
            absent.append(cited)
    return absent


@pytest.mark.parametrize("readme", READMES, ids=lambda readme: readme.parent.name)
def test_each_test_that_a_change_of_gvisor_names_is_there(readme: Path) -> None:
    tests = _TESTS.search(readme.read_text())
    assert tests is not None
    assert missing(tests[1]) == []


def test_a_test_that_is_not_there_is_found_missing() -> None:
    there = "budget_test.go; `tests/e2e/test_sdk_limits.py` and `test_sdk_inside.py`, `tests/crash/` (one)."
    assert missing(there) == []
    gone = [
        "gone_test.go",
        "tests/e2e/test_gone.py",
        "test_lost.py",
        "python -m tests.gone",
        "GoneConformance",
    ]
    assert missing("; ".join(gone)) == gone


def test_the_table_has_a_row_for_each_change_of_gvisor_in_their_order() -> None:
    rows = _ROW.findall((ROOT / "native/README.md").read_text())
    assert [row[0] for row in rows] == SERIES
    assert sorted(SERIES) == [readme.parent.name for readme in READMES]


def test_the_table_and_a_readme_agree_on_upstream() -> None:
    for feature, _, _, fitness in _ROW.findall((ROOT / "native/README.md").read_text()):
        told = _UPSTREAM.search((ROOT / "native/patches" / feature / "README.md").read_text())
        assert told is not None
        assert told[1].lower().startswith(fitness), feature
