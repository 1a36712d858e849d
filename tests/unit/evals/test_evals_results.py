"""Results: what rows amount to, and that nothing a guest wrote leaves its place in a table."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from atoll.errors import ExecFailedError, InvalidSpecError
from atoll.evals import Results, Row, Status
from atoll.evals.outcome import failure_of, outcome_of
from atoll.types import ExecResult


def row(strategy: str, repeat: int = 0, status: Status = "passed", **more: Any) -> Row:
    return Row(strategy=strategy, repeat=repeat, status=status, start_hash="h" * 64, **more)


HOSTILE = '<script>alert(1)</script>"\x1b[31m\u202e=1+1'
RESULTS = Results(
    [
        row("good", 0, score=3.0, wall_s=1.0, cost=0.5),
        row("good", 1, score=5.0, wall_s=2.0),
        row("good", 2, "failed", score=1.0, error=HOSTILE, output=HOSTILE, value=HOSTILE),
        row("good", 3, "skipped"),
        row("=cmd|' /C calc'!A0", 0, "error", error="@SUM(1)", value="=1+1", output="\t=2"),
        row("-1", 0, value=-1.5, score=-1.5, sandbox_id="s1"),
    ],
    evaluation="e1",
)


def test_a_summary_counts_what_came_to_its_end() -> None:
    good, bad, one = RESULTS.by_strategy()
    assert (good.runs, good.passed, good.mean, good.median, good.least, good.most) == (
        3,
        2,
        3.0,
        3.0,
        1.0,
        5.0,
    )
    assert good.cost == 0.5
    assert good.pass_rate == pytest.approx(2 / 3)
    assert (round(good.pass_low or 0, 3), round(good.pass_high or 0, 3)) == (0.208, 0.939)
    assert [good.pass_at(1), good.pass_at(2)] == pytest.approx([2 / 3, 1])
    assert (bad.runs, bad.passed, bad.mean) == (1, 0, None)
    assert one.runs == 1
    for k in (0, 4):
        with pytest.raises(InvalidSpecError):
            good.pass_at(k)
    nothing = Results([row("x", 0, "skipped")], evaluation="e").by_strategy()[0]
    assert (nothing.runs, nothing.pass_rate, nothing.mean_wall_s) == (0, None, None)


def test_the_best_row_is_the_first_that_passed_with_the_best_score() -> None:
    best, worst = RESULTS.best(), RESULTS.best(lowest=True)
    assert best is not None
    assert worst is not None
    assert (best.score, worst.score) == (5.0, -1.5)
    assert Results([row("x", 0, "failed", score=9.0)], evaluation="e").best() is None
    first = Results([row("none"), row("a", score=1.0), row("b", score=1.0)], evaluation="e").best()
    assert first is not None
    assert first.strategy == "a"


def test_a_page_has_no_markup_of_a_guest(tmp_path: Path) -> None:
    RESULTS.to_html(tmp_path / "page.html")
    for page in ((tmp_path / "page.html").read_text(), RESULTS._repr_html_()):
        assert "<script" not in page
        assert "\x1b" not in page
        assert "\u202e" not in page
        assert "&lt;script&gt;" in page
    assert "default-src &#x27;none&#x27;" in (tmp_path / "page.html").read_text()


def test_no_cell_of_a_csv_file_is_a_formula(tmp_path: Path) -> None:
    RESULTS.to_csv(tmp_path / "rows.csv")
    text = (tmp_path / "rows.csv").read_text()
    assert "\x1b" not in text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == len(RESULTS)
    assert [rows[4][name] for name in ("strategy", "error", "value", "output")] == [
        "'=cmd|' /C calc'!A0",
        "'@SUM(1)",
        "'=1+1",
        "'\t=2",
    ]
    assert (rows[5]["strategy"], rows[5]["value"], rows[5]["score"]) == ("'-1", "-1.5", "-1.5")


def test_json_has_everything_and_nothing_that_a_terminal_obeys(tmp_path: Path) -> None:
    Results([row("x", value="\x9b31m")], evaluation="e1").to_json(tmp_path / "rows.json")
    text = (tmp_path / "rows.json").read_text()
    assert "\x9b" not in text
    found = json.loads(text)
    assert (found["evaluation"], found["strategies"][0]["runs"]) == ("e1", 1)
    assert found["rows"][0]["value"] == "\x9b31m"


def test_tables_for_terminals_take_text_as_it_is() -> None:
    from rich.console import Console

    hostile = Results([row("[red]x[/red]\x1b[2J\n")], evaluation="e")
    console = Console(file=io.StringIO(), width=200)
    console.print(hostile.table())
    assert isinstance(console.file, io.StringIO)
    for shown in (console.file.getvalue(), str(hostile)):
        assert "[red]x[/red]\\x1b[2J\\n" in shown
    assert str(RESULTS).splitlines()[0].split() == (
        ["strategy", "runs", "passed", "pass", "rate", "mean", "median", "least", "most", "wall", "s", "cost"]
    )


@pytest.mark.parametrize(
    ("returned", "status", "score"),
    [
        (True, "passed", 1.0),
        (False, "failed", 0.0),
        (0, "passed", 0.0),
        (2.5, "passed", 2.5),
        (None, "passed", None),
        ("text", "passed", None),
        ([1, 2], "passed", None),
        ({"score": 2, "passed": False}, "failed", 2.0),
        ({"passed": True}, "passed", 1.0),
        ({"score": None, "more": [1]}, "passed", None),
        (ExecResult(exit_code=0, stdout_bytes=b"out"), "passed", 1.0),
        (ExecResult(exit_code=1, stdout_bytes=b"out", command="x"), "failed", 0.0),
        (float("nan"), "error", None),
        ({"score": "high"}, "error", None),
        (object(), "error", None),
        ("\ud800", "error", None),
        ("x" * 300_000, "error", None),
        (10**400, "error", None),
    ],
)
def test_what_a_task_returns_is_a_result(returned: object, status: Status, score: float | None) -> None:
    outcome = outcome_of(returned)
    assert (outcome.status, outcome.score) == (status, score)
    assert (outcome.error is None) == (status == "passed")


def test_a_failed_check_is_a_failure_with_its_output_and_anything_else_an_error() -> None:
    with pytest.raises(ExecFailedError) as caught:
        ExecResult(exit_code=2, stdout_bytes=b"out\n", stderr_bytes=b"\x1b[2J", command="make").check()
    outcome = failure_of(caught.value)
    assert (outcome.status, outcome.output) == ("failed", "out\n\\x1b[2J")
    try:
        assert len("ab") == 3
    except AssertionError as error:
        assert failure_of(AssertionError("two")).error == "AssertionError: two"
        assert failure_of(error).status == "failed"
    assert failure_of(OSError("gone")).status == "error"
    assert len(failure_of(ValueError("x" * 10_000)).error or "") < 2100
