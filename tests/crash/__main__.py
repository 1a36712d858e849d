"""``python -m tests.crash``: crash rounds for as long as one likes; ``--seed`` plays a run again."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from pathlib import Path

from tests import homes
from tests.crash.rounds import Rounds
from tests.crash.unattended import UnattendedRounds


def play(
    home: Path, *, seed: int, rounds: int, minutes: float | None = None, unattended: bool = False
) -> None:
    """Play so many rounds, or fewer when the time is over; the seed is told first."""
    sys.stdout.write(f"{'unattended' if unattended else 'crash'} rounds with seed {seed}\n")
    sys.stdout.flush()
    began_s = time.monotonic()
    playing = UnattendedRounds(home, seed) if unattended else Rounds(home, seed)
    try:
        while playing.tally.rounds < rounds and not _over(began_s, minutes):
            playing.play()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    finally:
        playing.close()
        took_s = time.monotonic() - began_s
        tally = playing.tally
        sys.stdout.write(f"{tally.rounds} rounds in {took_s:.0f} s, memory lost {tally.memory_lost} times\n")
        for outcome, count in sorted(tally.outcomes.items()):
            sys.stdout.write(f"  {count:5} {outcome}\n")


def _over(began_s: float, minutes: float | None) -> bool:
    return minutes is not None and time.monotonic() - began_s > minutes * 60


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10**9)
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument(
        "--unattended", action="store_true", help="of sandboxes that sleep, are stored and come back unasked"
    )
    wanted = parser.parse_args()
    if wanted.minutes is None and wanted.rounds == 10**9:
        wanted.minutes = 30.0
    with homes.make_home("ac-") as home:
        play(
            home,
            seed=wanted.seed,
            rounds=wanted.rounds,
            minutes=wanted.minutes,
            unattended=wanted.unattended,
        )


if __name__ == "__main__":
    main()
