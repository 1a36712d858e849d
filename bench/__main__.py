"""``python -m bench [GROUP…]``: measure, print a table, write bench/results.json."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path

from bench import (
    asks,
    audit,
    commands,
    control,
    create,
    density,
    disks,
    egress,
    evals,
    footprint,
    forks,
    gateway,
    generations,
    interactive,
    interpreter,
    leases,
    mcp,
    models,
    neighbours,
    processes,
    search,
    sleepers,
    states,
    store,
    transfers,
    unplug,
    wakes,
    work,
)
from bench.measure import Number

GROUPS = {
    "create": create,
    "commands": commands,
    "states": states,
    "store": store,
    "generations": generations,
    "processes": processes,
    "forks": forks,
    "evals": evals,
    "footprint": footprint,
    "disks": disks,
    "transfers": transfers,
    "work": work,
    "search": search,
    "interpreter": interpreter,
    "mcp": mcp,
    "density": density,
    "neighbours": neighbours,
    "control": control,
    "interactive": interactive,
    "leases": leases,
    "audit": audit,
    "asks": asks,
    "models": models,
    "sleepers": sleepers,
    "wakes": wakes,
    "gateway": gateway,
    "egress": egress,
    "unplug": unplug,
}
RESULTS = Path(__file__).parent / "results.json"
HEAD = ("number", "promise", "measured", "against", "is", "ratio", "kept")


def main(names: list[str]) -> int:
    """Measure the named groups, or all, and return 1 when a promise is not kept."""
    unknown = set(names) - set(GROUPS)
    if unknown:
        print(f"bench: no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    os.environ.setdefault("ATOLL_HOME", str(Path.home() / ".cache" / "atoll" / "bench-home"))
    numbers = []
    for name in names or GROUPS:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        numbers += GROUPS[name].numbers()
    show(numbers)
    RESULTS.write_text(json.dumps([as_json(number) for number in numbers], indent=2) + "\n")
    return 0 if all(number.kept for number in numbers) else 1


def as_json(number: Number) -> dict[str, object]:
    """A number with what follows from it."""
    return {**dataclasses.asdict(number), "ratio": number.ratio, "kept": number.kept}


def show(numbers: list[Number]) -> None:
    """Print the table."""
    rows = [HEAD, *(row(number) for number in numbers)]
    widths = [max(len(line[column]) for line in rows) for column in range(len(HEAD))]
    for line in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def row(number: Number) -> tuple[str, ...]:
    """A number as cells."""
    ratio = f"{number.ratio:.2f}" if number.ratio else ""
    return (
        number.name,
        f"{number.promise:g} {number.unit}" if number.promise else "",
        f"{number.measured:.2f} {number.unit}",
        number.reference_name,
        f"{number.reference:.2f} {number.unit}" if number.reference else "",
        f"{ratio} (≤ {number.most_ratio:g})" if number.most_ratio else ratio,
        "yes" if number.kept else "NO",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
