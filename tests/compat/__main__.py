"""``python -m tests.compat``: real programs inside, before a sleep, after it and in a fork, and a table of results."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time

from tests import homes
from tests.compat import (
    base,
    browsers,
    compilers,
    containers,
    databases,
    languages,
    libraries,
    media,
    node,
    refused,
    servers,
    tools,
)
from tests.compat.playing import TURNS, Row, play
from tests.compat.program import Family

FAMILIES: dict[str, Family] = {
    room.FAMILY.name: room.FAMILY
    for room in (
        base,
        tools,
        databases,
        servers,
        compilers,
        languages,
        libraries,
        node,
        media,
        browsers,
        containers,
        refused,
    )
}


def table(rows: list[Row]) -> str:
    """A line for each program, what went wrong below it, and their number."""
    lines = [
        f"{'program':28}{'install':>9}{'before':>8}{'after':>8}{'fork':>8}{'inside':>10}{'native':>10}{'ratio':>7}"
    ]
    for row in rows:
        turns = "".join(f"{_short(row.outcomes.get(turn)):>8}" for turn in TURNS)
        times = "".join(
            f"{'' if ms is None else f'{ms:.0f} ms':>10}" for ms in (row.inside_ms, row.native_ms)
        )
        ratio = "" if row.ratio is None else f"{row.ratio:.1f}"
        lines.append(f"{row.family + '/' + row.name:28}{row.install_s:>7.0f} s{turns}{times}{ratio:>7}")
        lines += [f"    {turn}: {said}" for turn, said in row.outcomes.items() if said != "right"]
    lines.append(f"{sum(row.right for row in rows)} of {len(rows)} programs right in every turn")
    return "\n".join(lines) + "\n"


def _short(outcome: str | None) -> str:
    return "-" if outcome is None else "right" if outcome == "right" else "WRONG"


def _chosen(families: list[str], programs: list[str]) -> list[Family]:
    found = [FAMILIES[name] for name in families or FAMILIES]
    if not programs:
        return found
    kept = [
        dataclasses.replace(family, programs=tuple(one for one in family.programs if one.name in programs))
        for family in found
    ]
    return [family for family in kept if family.programs]


def main() -> int:
    """Run from the command line; 1 where a program is not right."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat", description=__doc__)
    parser.add_argument("--family", action="append", default=[], choices=sorted(FAMILIES))
    parser.add_argument("--program", action="append", default=[], metavar="NAME")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON instead of the table")
    wanted = parser.parse_args()
    rows: list[Row] = []
    with homes.make_home("am-") as home:
        del home
        for family in _chosen(wanted.family, wanted.program):
            began_s = time.monotonic()
            rows += play(family)
            sys.stderr.write(f"{family.name}: {time.monotonic() - began_s:.0f} s\n")
    told = [{**dataclasses.asdict(row), "right": row.right, "ratio": row.ratio} for row in rows]
    sys.stdout.write(json.dumps(told, indent=2) + "\n" if wanted.json else table(rows))
    return 0 if rows and all(row.right for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
