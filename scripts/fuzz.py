"""Fuzzes every parser that reads hostile bytes in Go, each for some seconds: ``python scripts/fuzz.py --seconds 60``.

`go test` alone runs the seeds of all of them.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

from checks import ROOT
from go_modules import go_modules, test_files

_TARGET = re.compile(r"^func (Fuzz\w+)\(", re.MULTILINE)


def targets() -> list[tuple[str, str, str]]:
    """Each target with its module and package."""
    found = []
    for module in go_modules():
        for file in test_files(module):
            package = f"./{file.parent.relative_to(ROOT / module)}"
            found += [(module, package, name) for name in _TARGET.findall(file.read_text())]
    return found


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    seconds = parser.parse_args().seconds
    failed = []
    for module, package, name in targets():
        print(f"== {module} {package} {name}", flush=True)  # noqa: T201
        only = ["-run", "^$", "-fuzz", f"^{name}$", "-fuzztime", f"{seconds}s", "-fuzzminimizetime", "5s"]
        if subprocess.run(["go", "test", package, *only], cwd=ROOT / module, check=False).returncode:
            failed.append(f"{module} {package} {name}")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
