"""Inspect's own checks of a sandbox provider, and whole evaluations, against real sandboxes."""

from __future__ import annotations

from pathlib import Path

from tests.adapters.libraries import run_cases

VERSION = "0.3.285"


def test_inspects_own_checks_and_whole_evaluations_pass(module_home: Path, tmp_path: Path) -> None:
    run_cases("inspect_ai", f"inspect_ai=={VERSION}", tmp_path=tmp_path)
