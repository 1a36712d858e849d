import re
from pathlib import Path

from bench.__main__ import GROUPS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])


def test_the_readme_has_at_most_120_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_every_link_between_pages_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_every_variable_that_is_read_is_documented() -> None:
    documented = (ROOT / "docs/reference/settings.md").read_text()
    sources = [*ROOT.glob("src/atoll/**/*.py"), ROOT / "hatch_build.py"]
    read = {name for path in sources for name in re.findall(r"\"(ATOLL_[A-Z_]+)\"", path.read_text())}
    # Set by click for completion, and by the image's own build for its script.
    internal = {"ATOLL_COMPLETE", "ATOLL_GUEST_APT_OPTIONS"}
    assert {name for name in read - internal if f"`{name}`" not in documented} == set()


def test_every_promised_number_names_a_bench_that_is_run() -> None:
    named = set(re.findall(r"\(bench/(\w+)\.py\)", (ROOT / "SPECIFICATION.md").read_text()))
    assert named == set(GROUPS)
