"""``python -m tests.churn``: sandboxes come and go for so many seconds, and nothing of the home has grown at the end.

It does so in laps. Each ends with all sandboxes killed but a few elders, which sleep, and with a reading of what the
home and its supervisor hold. The first laps warm up. The last readings are compared with those of the warm-up.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import sys
import time
from pathlib import Path

from atoll import Sandbox, Supervisor
from atoll.host import Home
from tests import homes
from tests.churn.flatness import grown, said, slack
from tests.churn.population import Population, median_ms
from tests.churn.reading import Reading, read
from tests.churn.telling import telling

_LAP_LEAST_S, _LAPS = 20.0, 20
_WARM_UP_PART = 0.25
_READINGS = 2
_SETTLED_S = 45.0
_LIKE_NEW = 3.0
_EXECS, _WAKES = 40, 12
_WHILE_SETTLING = ("processes", "namespaces", "mounts", "control groups", "descriptors")
_TOLD = ("memory", "descriptors", "processes", "mounts", "rows of sandboxes", "rows of snapshots")


class Churn:
    """Laps of one population in a home, and what was read after each."""

    def __init__(self, home: Path, live: int, seed: int) -> None:
        self.readings: list[Reading] = []
        self.laps: list[dict[str, float]] = []
        self._home = Home(home)
        self._began_s = time.monotonic()
        self.population = Population(self._home, live, seed)

    def lap(self, seconds: float) -> None:
        """Churn for so long, and read what is left of it."""
        self.population.took_s.clear()
        with telling(self._tell):
            self.population.churn(time.monotonic() + seconds)
        self.laps.append({what: median_ms(took_s) for what, took_s in self.population.took_s.items()})
        self.population.empty()
        self.readings.append(self._settled())
        last = self.readings[-1]
        assert last["pid"] == self.readings[0]["pid"], "the supervisor has ended meanwhile"
        self.say(f"lap {len(self.laps)}: " + ", ".join(f"{name} {said(name, last[name])}" for name in _TOLD))

    def say(self, text: str) -> None:
        """Tell how it goes."""
        sys.stdout.write(f"{time.monotonic() - self._began_s:6.0f} s  {text}\n")
        sys.stdout.flush()

    def _settled(self) -> Reading:
        """What the home holds once nothing is left over, and what the last calls set in motion is done."""
        deadline = time.monotonic() + _SETTLED_S
        while left := Supervisor.leftovers():
            assert time.monotonic() < deadline, f"left over: {left}"
            time.sleep(0.1)
        found, more, most = read(), list[str](), Reading()
        while time.monotonic() < deadline:
            time.sleep(1)
            Supervisor.leftovers()  # a supervisor that nobody asks anything leaves
            before, found = found, read()
            most = {
                name: min(each[name] for each in [*self.readings, found]) + slack(name, 0)
                for name in _WHILE_SETTLING
            }
            more = [name for name in _WHILE_SETTLING if not before[name] == found[name] <= most[name]]
            if not more:
                return found
        self.say(
            "more than before: "
            + ", ".join(f"{name} {found[name]:.0f}, not {most[name]:.0f}" for name in more)
        )
        return found

    def _tell(self) -> None:
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.population.states().items()))
        self.say(f"{self.population.done.total()} things done; {states}")


def play(seconds: float, live: int, seed: int, *, growth_only: bool = False) -> None:
    """Churn for so long.

    Args:
        seconds: How long, at least.
        live: How many sandboxes there are at a time.
        seed: What is done to them at random.
        growth_only: Do not compare with a new home how long calls take.

    Raises:
        AssertionError: Something has grown, or takes longer; the message says what, and by how much.
    """
    sys.stdout.write(f"churn of {live} sandboxes for {seconds:.0f} s with seed {seed}\n")
    with homes.make_home("ch-") as home:
        began_s = time.monotonic()
        churn = Churn(home, live, seed)
        lap_s = max(_LAP_LEAST_S, seconds / _LAPS)
        warm = 0
        while time.monotonic() - began_s < seconds or len(churn.laps) < warm + _READINGS:
            churn.lap(lap_s)
            if warm == 0 and len(churn.laps) >= _READINGS:
                warm = len(churn.laps) if time.monotonic() - began_s >= seconds * _WARM_UP_PART else 0
        for what, count in sorted(churn.population.done.items()):
            sys.stdout.write(f"  {count:6} {what}\n")
        before, after = churn.readings[warm - _READINGS : warm], churn.readings[-_READINGS:]
        for name in sorted(after[-1].keys() - {"pid"}):
            churn.say(f"{name}: {said(name, before[-1].get(name, 0.0))} → {said(name, after[-1][name])}")
        told = grown(before, after, len(churn.population.elders))
        for what in sorted(churn.laps[-1].keys() & churn.laps[warm - 1].keys()):
            first, last = churn.laps[warm - 1][what], churn.laps[-1][what]
            churn.say(f"{what} beside the others: {first:.1f} ms after the warm-up, {last:.1f} ms at the end")
        if not growth_only:
            told += _slower(home)
        churn.say("nothing has grown" if not told else "it has grown")
        assert not told, "\n".join([f"seed {seed}, after {churn.population.done.total()} things:", *told])


def _slower(home: Path) -> list[str]:
    """Say what takes longer than in a new home, turn by turn with one, since machines are busy now and then."""
    with homes.make_home("cn-") as new:
        took_s: dict[Path, dict[str, list[float]]] = {each: {"exec": [], "wake": []} for each in (home, new)}
        with contextlib.ExitStack() as stack:
            sandboxes = {}
            for each in took_s:
                with homes.entered(each):
                    sandboxes[each] = stack.enter_context(Sandbox.create())
            for number in range(_EXECS):
                for each, sandbox in sandboxes.items():
                    with homes.entered(each):
                        if number % (_EXECS // _WAKES) == 0:
                            sandbox.suspend()
                            _time(took_s[each]["wake"], sandbox)
                        _time(took_s[each]["exec"], sandbox)
    told = []
    for what in ("exec", "wake"):
        old_ms, new_ms = median_ms(took_s[home][what]), median_ms(took_s[new][what])
        sys.stdout.write(f"{what}: {old_ms:.1f} ms, in a new home {new_ms:.1f} ms, {old_ms / new_ms:.2f} x\n")
        if old_ms > new_ms * _LIKE_NEW:
            told.append(f"{what} takes {old_ms:.1f} ms, {old_ms / new_ms:.1f} times as long as in a new home")
    return told


def _time(into: list[float], sandbox: Sandbox) -> None:
    began_s = time.monotonic()
    sandbox.exec(["true"]).check()
    into.append(time.monotonic() - began_s)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.churn", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--live", type=int, default=10, help="how many sandboxes there are at a time")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument(
        "--growth-only", action="store_true", help="do not compare how long calls take, as on a noisy machine"
    )
    wanted = parser.parse_args()
    play(wanted.seconds, wanted.live, wanted.seed, growth_only=wanted.growth_only)


if __name__ == "__main__":
    main()
