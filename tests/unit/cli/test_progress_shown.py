from __future__ import annotations

import os
import re
import subprocess
import sys

import msgspec
import pytest
from tests.unit.images.test_progress import OUTPUT, reports

from atoll.cli.progress import progress_shown
from atoll.types import Progress

SHOWING = """
import sys
import msgspec
from atoll.cli.progress import progress_shown
from atoll.types import Progress
with progress_shown() as report:
    for each in msgspec.json.decode(sys.stdin.buffer.read(), type=list[Progress]):
        report(each)
        report.__self__._bars.refresh()
"""


def shown_on_a_terminal(told: list[Progress]) -> str:
    """What a terminal of 100 columns gets."""
    ours, theirs = os.openpty()
    try:
        env = {**os.environ, "COLUMNS": "100", "TERM": "xterm"}
        done = subprocess.run(
            [sys.executable, "-c", SHOWING],
            input=msgspec.json.encode(told),
            stderr=theirs,
            env=env,
            timeout=60,
            check=True,
        )
        assert done.returncode == 0
        os.set_blocking(ours, False)
        seen = b""
        while True:
            try:
                seen += os.read(ours, 65536)
            except BlockingIOError:
                return seen.decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_build_is_one_bar_that_goes_once_to_its_end() -> None:
    seen = shown_on_a_terminal(reports(OUTPUT))
    shares = [int(share) for share in re.findall(r"(\d+) %", seen)]
    assert shares == sorted(shares)
    assert shares[0] == 0 and shares[-1] == 97
    assert "installing the other packages" in seen and "1 of 2 packages" in seen


def test_a_step_that_knows_nothing_leaves_the_bar_where_it_is() -> None:
    told = [
        Progress(step="downloading x", done=1 << 20, total=2 << 20, unit="bytes", whole=0.4),
        Progress(step="waiting for another image"),
        Progress(step="unpacking x", whole=0.3),
    ]
    seen = shown_on_a_terminal(told)
    assert set(re.findall(r"(\d+) %", seen)) == {"40"}
    assert "1.0 MiB of 2.0 MiB" in seen


HEADED = [
    Progress(step="reading the package lists", heading="building the image base [1]: later ones do not wait"),
    Progress(step="finishing", heading="building the image base [1]: later ones do not wait"),
    Progress(step="booting"),
]


def test_a_heading_is_one_line_before_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_shown() as report:
        for each in HEADED:
            report(each)
    assert capsys.readouterr().err.splitlines() == [
        "building the image base [1]: later ones do not wait",
        "reading the package lists",
        "finishing",
        "booting",
    ]


def test_a_heading_stays_above_the_bar() -> None:
    seen = shown_on_a_terminal(HEADED)
    assert seen.count("building the image base [1]: later ones do not wait\r\n") == 1
    assert "booting" in seen


def test_where_there_is_no_terminal_quarters_are_lines_and_count_all_of_the_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress_shown() as report:
        for each in reports(OUTPUT):
            report(each)
        report(Progress(step="reading", done=1, total=2))
    assert capsys.readouterr().err.splitlines() == [
        "reading the package lists",
        "downloading the first packages",
        "extracting the first packages",
        "installing the first packages 25 %",
        "downloading the other packages 25 %",
        "installing the other packages 50 %",
        "installing the other packages 75 %",
        "finishing 75 %",
        "reading 75 %",
    ]


def test_one_step_without_a_whole_has_its_own_share(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_shown() as report:
        for done in range(5):
            report(Progress(step="reading x", done=done, total=4, unit="bytes"))
    assert capsys.readouterr().err.splitlines()[-1] == "reading x 100 %"
