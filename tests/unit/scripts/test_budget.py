"""What `.ci/run` says at its end about stages and tests that take longer than they may."""

from __future__ import annotations

from pathlib import Path

import pytest

from budget import BUDGET, Budget, Stage, budget_from, stages_of, told, written
from checks import Check, Outcome, note

LINES = [
    "test\t1.50\tcheck\ttests/a.py::test_one",
    "test\t7.25\tcheck\ttests/a.py::test_one",
    "test\t0.10\tcheck\ttests/a.py::test_two",
    "stage\t100\tcheck\t",
    "stage\t30\tdocs\tFAILED",
]


def test_a_tests_parts_count_together_and_belong_to_its_stage() -> None:
    tests = {"tests/a.py::test_one": 8.75, "tests/a.py::test_two": 0.1}
    assert stages_of(LINES) == [Stage("check", 100, False, tests), Stage("docs", 30, True, {})]


def test_a_stage_over_its_budget_is_told_with_the_tests_that_grew() -> None:
    budget = budget_from('[stages]\ncheck = 80\ndocs = 30\n[tests.check]\n"tests/a.py::test_one" = 5\n')
    said = told(stages_of(LINES), budget).splitlines()
    assert "     30      30  docs FAILED" in said
    assert said[-2:] == [
        "over its budget of 80 s: check, 100 s",
        "  tests/a.py::test_one: 8.8 s, was 5.0 s",
    ]


def test_what_failed_comes_last_with_its_reason() -> None:
    lines = [*LINES, "failed\t0\tdocs\tcall of tests/a.py::test_two: assert 1 == 2"]
    said = told(stages_of(lines), budget_from("[stages]\ncheck = 10\n[tests]\n")).splitlines()
    assert said[-1] == "docs: FAILED: call of tests/a.py::test_two: assert 1 == 2"


def test_a_check_that_failed_names_its_tests_or_the_last_that_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATOLL_STAGES", str(tmp_path / "stages"))
    monkeypatch.setenv("ATOLL_STAGE", "check")
    go = "=== RUN TestA\n--- FAIL: TestA (0.1s)\n  a_test.go:1: no\nFAIL\n"
    for name, passed, output in (("go", False, go), ("mypy", False, "a\tb\n\nc\n"), ("ruff", True, "fine")):
        note(Outcome(Check(name, ()), passed, 1, output))
    assert (tmp_path / "stages").read_text().splitlines() == [
        "failed\t0\tcheck\tgo: --- FAIL: TestA (0.1s)",
        "failed\t0\tcheck\tmypy: a b",
        "failed\t0\tcheck\tmypy: c",
    ]


def test_a_stage_a_little_over_its_budget_is_not_told() -> None:
    budget = budget_from("[stages]\ncheck = 90\n[tests]\n")
    assert not [line for line in told(stages_of(LINES), budget).splitlines() if line.startswith("over")]


def test_a_budget_written_from_a_run_is_kept_by_this_run() -> None:
    stages = stages_of(LINES)
    budget = budget_from(written(stages, Budget({}, {})))
    assert not any(map(budget.over, stages)) and budget.tests == {"check": {"tests/a.py::test_one": 9}}


def test_a_budget_that_a_person_states_outlives_a_run_and_a_stage_of_no_time_has_none() -> None:
    stages = stages_of([*LINES, "stage\t3\tinstall\t", "stage\t0\twheels\t", "stage\t1604\tall of it\t"])
    before = Budget({"check": 80, "install": 150, "all of it": 1800}, {})
    budget = budget_from(written(stages, before))
    assert budget.stages == {"check": 100, "docs": 30, "install": 150, "all of it": 1800}


def test_all_of_the_tests_have_thirty_minutes() -> None:
    assert budget_from(BUDGET.read_text()).stages["all of it"] <= 1800
