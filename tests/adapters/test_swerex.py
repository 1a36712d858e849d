"""What SWE-ReX asks of a deployment and a runtime, against real sandboxes."""

from __future__ import annotations

from pathlib import Path

from tests.adapters.libraries import run_cases

VERSION = "1.4.0"


def test_a_runtime_of_swe_rex_is_a_sandbox(module_home: Path, tmp_path: Path) -> None:
    run_cases("swerex", f"swe-rex=={VERSION}", tmp_path=tmp_path)
