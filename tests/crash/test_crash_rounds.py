"""Supervisor, engine, agent and client are killed at random moments of every operation; nothing promised is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.__main__ import play

pytestmark = pytest.mark.twice

# Each kind of step of each operation has its kill in tests/crash/points; `make soak` plays many more rounds.
_ROUNDS = 50 if os.geteuid() == 0 else 25
_UNATTENDED_ROUNDS = 2 if os.geteuid() == 0 else 1


@pytest.mark.timeout(1800)
def test_what_was_promised_is_so_after_every_kill(home: Path) -> None:
    seed = int(os.environ.get("ATOLL_CRASH_SEED") or os.getpid())
    play(home, seed=seed, rounds=int(os.environ.get("ATOLL_CRASH_ROUNDS") or _ROUNDS))


@pytest.mark.timeout(1800)
def test_what_sleeps_is_stored_and_comes_back_unasked_keeps_what_was_promised(home: Path) -> None:
    seed = int(os.environ.get("ATOLL_CRASH_SEED") or os.getpid())
    rounds = int(os.environ.get("ATOLL_CRASH_ROUNDS") or _UNATTENDED_ROUNDS)
    play(home, seed=seed, rounds=rounds, unattended=True)
