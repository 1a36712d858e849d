"""Says how long each stage of `make test` took, how long it may take, and what failed. It fails nothing.

``budget.py STAGES`` reads the lines that scripts/stage, scripts/checks.py and tests/conftest.py wrote. It names each
stage that took over 1.2 times its budget, with its tests that grew. What failed comes last, where a log is read first.
``budget.py STAGES --renew`` writes scripts/budget.toml from a run on a quiet machine with 2 processors, and leaves the
budgets that a person states as they are.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BUDGET = Path(__file__).with_name("budget.toml")
OVER = 1.2
SLOWEST = 10
# A test that takes less is not worth a line, and may grow by as much unseen.
NOTED_S = 4.0
_HEAD = """\
# Seconds on a quiet machine with 2 processors: the budget of each stage of `make test`, and the times of its longest
# tests. After a run of .ci/run there, `scripts/budget.py STAGES --renew` writes this file.
"""
# A person states these: a run shows neither the time of a machine with nothing installed, nor what is promised.
STATED = ("Debian packages", "install", "all of it")


@dataclass(frozen=True)
class Stage:
    """A stage that has ended, and its tests in seconds."""

    name: str
    seconds: float
    failed: bool = False
    tests: Mapping[str, float] = field(default_factory=dict)
    failures: Sequence[str] = ()

    def slowest(self) -> list[tuple[str, float]]:
        """Its longest tests, the longest first."""
        return sorted(self.tests.items(), key=lambda each: -each[1])[:SLOWEST]


@dataclass(frozen=True)
class Budget:
    """What stages may take, and what tests took when the budget was written, in seconds."""

    stages: Mapping[str, float]
    tests: Mapping[str, Mapping[str, float]]

    def over(self, stage: Stage) -> bool:
        """Whether a stage took over 1.2 times what it may."""
        return stage.seconds > self.stages.get(stage.name, float("inf")) * OVER

    def grown(self, stage: Stage) -> list[tuple[str, float, float]]:
        """The tests of a stage that took longer than noted, with both times; those that grew most come first."""
        noted = self.tests.get(stage.name, {})
        found = [(name, noted.get(name, NOTED_S), took) for name, took in stage.tests.items()]
        grown = [each for each in found if each[2] > each[1] * OVER and each[2] > NOTED_S]
        return sorted(grown, key=lambda each: each[1] - each[2])[:SLOWEST]


def stages_of(lines: Sequence[str]) -> list[Stage]:
    """The stages of a run, in the order in which they ended."""
    tests: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    failures: dict[str, list[str]] = defaultdict(list)
    ended: list[tuple[str, float, bool]] = []
    for line in lines:
        kind, seconds, name, rest = line.split("\t")
        if kind == "stage":
            ended.append((name, float(seconds), bool(rest)))
        elif kind == "failed":
            failures[name].append(rest)
        else:
            tests[name][rest] += float(seconds)
    return [
        Stage(name, seconds, failed, tests.get(name, {}), failures.get(name, ()))
        for name, seconds, failed in ended
    ]


def budget_from(text: str) -> Budget:
    """The budget that the file states."""
    read = tomllib.loads(text)
    return Budget(read["stages"], read.get("tests", {}))


def told(stages: Sequence[Stage], budget: Budget) -> str:
    """The table of a run, and what passed its budget."""
    lines = ["", "seconds  budget  stage"]
    for stage in stages:
        may = budget.stages.get(stage.name)
        shown = f"{may:6.0f}" if may is not None else "     –"
        lines.append(f"{stage.seconds:7.0f}  {shown}  {stage.name}{' FAILED' if stage.failed else ''}")
        lines += [f"{took:25.1f}  {name}" for name, took in stage.slowest() if took > NOTED_S]
    for stage in filter(budget.over, stages):
        lines.append(
            f"over its budget of {budget.stages[stage.name]:.0f} s: {stage.name}, {stage.seconds:.0f} s"
        )
        lines += [f"  {name}: {took:.1f} s, was {was:.1f} s" for name, was, took in budget.grown(stage)]
    lines += [f"{stage.name}: FAILED: {failure}" for stage in stages for failure in stage.failures]
    return "\n".join(lines)


def written(stages: Sequence[Stage], before: Budget) -> str:
    """The text of the file that makes this run the budget, but for what a person has stated in the one before."""
    stated = {name: may for name, may in before.stages.items() if name in STATED}
    seconds = {stage.name: stage.seconds for stage in stages} | stated
    # Every run would be over the budget of a stage that took no second.
    some = {name: may for name, may in seconds.items() if round(may)}
    lines = [_HEAD, "[stages]", *(f"{json.dumps(name)} = {may:.0f}" for name, may in some.items())]
    for stage in stages:
        long = sorted((name, took) for name, took in stage.tests.items() if took > NOTED_S)
        if not long:
            continue
        lines += [
            "",
            f"[tests.{json.dumps(stage.name)}]",
            *(f"{json.dumps(name)} = {took:.0f}" for name, took in long),
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", type=Path)
    parser.add_argument("--renew", action="store_true")
    given = parser.parse_args()
    stages = stages_of(given.stages.read_text().splitlines())
    if given.renew:
        BUDGET.write_text(written(stages, budget_from(BUDGET.read_text())))
    else:
        print(told(stages, budget_from(BUDGET.read_text())))


if __name__ == "__main__":
    main()
