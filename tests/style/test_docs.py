import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
from bench.__main__ import GROUPS
from tests.compat import refused

from atoll.errors import AtollError
from atoll.exit_codes import ExitCode
from atoll.policy import schema
from atoll.types import AskTerms, Inject, Mcp, Policy, RateLimit, Rule, UpstreamProxy

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
WRAPPED = [
    *PAGES,
    *sorted(ROOT.glob("native/**/*.md")),
]
LINE_CHARACTERS = 100


def test_the_readme_has_at_most_120_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_readme_names_both_commands_for_a_fresh_checkout_near_its_top() -> None:
    top = (ROOT / "README.md").read_text().splitlines()[:50]
    assert {line.partition("#")[0].strip() for line in top} >= {"make demo", "make test"}


def test_every_line_of_prose_has_at_most_100_characters() -> None:
    long = [
        f"{page.relative_to(ROOT)}:{number}: {len(line)}"
        for page in WRAPPED
        for number, line in prose(page)
        if len(line) > LINE_CHARACTERS and "://" not in line
    ]
    assert long == []


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page, by their numbers, that are neither in a code block nor in a table."""
    fenced = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("|"):
            yield number, line


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


def test_each_row_of_what_does_not_work_inside_has_a_check_of_its_name() -> None:
    table = (ROOT / "docs/guide/inside.md").read_text().partition("## What does not work inside")[2]
    rows = re.findall(r"^\| ([^|]+?) \|", table, re.MULTILINE)[1:]
    assert sorted(rows) == sorted(program.name for program in refused.FAMILY.programs)


def test_each_row_of_what_survives_what_has_a_test() -> None:
    def rows(page: str, heading: str) -> list[str]:
        table = (ROOT / page).read_text().partition(heading)[2].partition("\n#")[0]
        return re.findall(r"^\| (.+) \|$", table, re.MULTILINE)[1:]

    events = [row.split(" | ")[0] for row in rows("docs/guide/survival.md", "# What survives what")]
    proofs = [row.split(" | ") for row in rows("docs/design/proofs.md", "## What survives what")]
    # the pages lie in different directories
    assert [event.replace("../guide/", "") for event, _ in proofs] == events
    for _, proof in proofs:
        path, name = re.findall(r"`([^`]+)`", proof)
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), proof


def test_the_published_schema_of_policies_is_current() -> None:
    """Otherwise run ``.venv/bin/python scripts/policy_schema.py``."""
    assert json.loads((ROOT / "docs/reference/policy.schema.json").read_text()) == schema()


def test_every_key_of_a_policy_is_in_the_reference() -> None:
    keys = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/reference/policy.md").read_text(), re.MULTILINE))
    kinds = (Policy, Rule, AskTerms, Inject, Mcp, RateLimit, UpstreamProxy)
    assert keys == {field.name for kind in kinds for field in msgspec.structs.fields(kind)}


def test_the_page_of_errors_has_each_code_its_class_and_whether_to_try_again() -> None:
    def below(kind: type[AtollError]) -> Iterator[type[AtollError]]:
        yield kind
        for child in kind.__subclasses__():
            yield from below(child)

    text = (ROOT / "docs/reference/errors.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (yes|no) \|", text, re.MULTILINE)
    own = [kind for kind in below(AtollError) if kind.__module__.startswith("atoll.errors")]
    assert sorted(rows) == sorted(
        (kind.code, kind.__name__, "yes" if kind.retryable else "no") for kind in own
    )


def test_the_page_of_errors_has_each_exit_code_of_atoll() -> None:
    text = (ROOT / "docs/reference/errors.md").read_text()
    table = text.partition("| exit code | means |\n|---|---|\n")[2].partition("\n\n")[0]
    assert [int(row.split("|")[1]) for row in table.splitlines()] == list(ExitCode)
