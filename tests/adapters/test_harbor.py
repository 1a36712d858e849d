"""Trials of Harbor with its agents that need no model, against real sandboxes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.adapters.libraries import run_cases

VERSION = "0.26.0"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Harbor needs Python 3.12")
def test_trials_of_harbor_run_in_sandboxes(module_home: Path, tmp_path: Path) -> None:
    run_cases("harbor", f"harbor=={VERSION}", tmp_path=tmp_path)
