"""Frameworks of agents: their own loops, with models that are scripts, act in real sandboxes.

The cases of smolagents need a template, and run where that is made: tests/e2e/test_code.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.adapters.libraries import run_cases

REQUIREMENTS = {
    "agent_framework": ["agent-framework-core==1.23.0"],
    "langchain": ["langchain==1.5.2", "langchain-core==1.8.3", "deepagents==0.7.32"],
    "openai_agents": ["openai-agents==0.24.0"],
    "pydantic_ai": ["pydantic-ai-slim==2.68.0"],
}


@pytest.mark.parametrize("library", REQUIREMENTS)
def test_a_loop_with_a_scripted_model_acts_in_a_sandbox(
    library: str, module_home: Path, tmp_path: Path
) -> None:
    run_cases(library, *REQUIREMENTS[library], tmp_path=tmp_path)


@pytest.mark.skipif("ATOLL_TEST_CREWAI" not in os.environ, reason="its packages have 0.8 GB: asked for only")
def test_crewais_loop_with_a_scripted_model_acts_in_a_sandbox(module_home: Path, tmp_path: Path) -> None:
    run_cases("crewai", "crewai==1.15.30", tmp_path=tmp_path)
