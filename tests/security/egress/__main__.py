"""``python -m tests.security.egress``: policies and requests at random, on the wire and asked about."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings

from tests.security.egress.agreement import agree, cases
from tests.security.egress.ground import Yard


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.security.egress", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    end_s = time.monotonic() + parser.parse_args().minutes * 60
    with tempfile.TemporaryDirectory() as directory:
        yard, count = Yard(Path(directory), agree), 0

        @settings(
            max_examples=200,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        )
        @given(case=cases())
        def agrees(case: dict[str, Any]) -> None:
            nonlocal count
            count += 1
            failure = yard.do(json.dumps(case))
            assert not failure, failure

        try:
            while time.monotonic() < end_s:
                agrees()
        finally:
            sys.stdout.write(f"{count} policies, each with some requests\n")
            left = yard.close()
    assert not left, left


if __name__ == "__main__":
    main()
