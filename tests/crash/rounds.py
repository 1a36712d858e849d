"""Rounds: an operation is begun, something is killed, and then everything that was promised must be so."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from atoll import AtollError, Lifecycle, Sandbox, Snapshot, Snapshots, Supervisor
from atoll.errors import EngineError, SandboxCrashedError, SandboxNotFoundError, StateError
from atoll.host import Home
from atoll.snapshots.chains import LONGEST
from tests.crash import builds_and_volumes, victims
from tests.crash.ledger import PATIENCE_S, Entry, Scribe, begin, look
from tests.crash.points.points import Points
from tests.crash.worker import Client
from tests.homes import logs_of

OPERATIONS = (
    "create",
    "exec",
    "files",
    "pause",
    "resume",
    "suspend",
    "stop",
    "timeout",
    "wake",
    "snapshot",
    "fork",
    "freeze",
    "rollback",
    "kill",
    "from_snapshot",
    "forget",
    "volume",
    "build",
)
_FORKS = ("fork", "freeze")
# A fork of a running sandbox that has written more freezes its layer below it, where layers can be frozen.
_MUCH = "head -c 70000000 /dev/zero >/workspace/much"
_SNAPSHOTS_MOST = 3
_FIRST_GUESS_S = 0.15
_QUIET_LOOKS = 5


@dataclass
class Kept:
    """A snapshot: the ledger is between these two entries of one run."""

    low: Entry
    high: Entry

    def has(self, found: Entry) -> bool:
        """Whether a ledger that was brought back from it may say this."""
        return (
            found.run == self.low.run
            and self.low.memory <= found.memory <= self.high.memory + 1
            and found.durable - found.memory == self.low.durable - self.low.memory
        )


@dataclass
class Round:
    """One round, told when something is wrong with it."""

    number: int
    operation: str
    victim: str
    delay_s: float
    killed: bool
    state: str = ""
    outcome: str = ""
    step: int = 0


@dataclass
class Tally:
    """What happened in all rounds."""

    rounds: int = 0
    memory_lost: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)


class Rounds:
    """Plays rounds in a home; the same seed plays the same operations, victims and shares of their time.

    Args:
        path: The home, named by ``ATOLL_HOME``.
        seed: Of everything that is left to chance.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self.tally = Tally()
        self._home = Home(path)
        self._dice = random.Random(seed)
        self._client = Client()
        self._took_s: dict[str, list[float]] = defaultdict(list)
        self._kept: dict[str, Kept] = {}
        self._names = 0
        self._winner: Kept | None = None
        # A guest whose agent was killed while it was frozen ends in a later round, when it is thawed.
        self._doomed = False
        self._sandbox = self._made()
        self._known = self._low = look(self._sandbox)

    def close(self) -> None:
        """Let go of everything but the home."""
        self._client.close()
        self._sandbox.close()

    def play(self) -> None:
        """Play one round.

        Raises:
            AssertionError: A promise was broken; the message tells the round.
        """
        operation = self._dice.choice(OPERATIONS)
        if operation in ("from_snapshot", "forget") and not self._kept:
            operation = "snapshot"
        if operation == "rollback" and not self._own():
            operation = "snapshot"
        victim = self._dice.choice(victims.VICTIMS)
        known_s = self._took_s[operation][-9:] or [_FIRST_GUESS_S]
        delay_s = self._dice.uniform(0, 1.2) * statistics.median(known_s)
        killed = victim in ("engine", "agent") or self._doomed
        now = Round(self.tally.rounds, operation, victim, delay_s, killed)
        now.state = self._dice.choice(["running", "running", "paused", "suspended"])
        self._doomed = False
        self._told(now, lambda: self._strike_late(now))

    def play_point(self, operation: str, state: str, points: Points, limit: int = 0) -> bool:
        """Play one round in which the supervisor dies right before step ``limit``; whether it came so far.

        Raises:
            AssertionError: See ``play``.
        """
        if (
            operation == "rollback"
            and not self._own()
            or operation in ("from_snapshot", "forget")
            and not self._kept
        ):
            self._sandbox.resume()
            self._keep_one()
        if operation == "merge":
            operation = "snapshot"
            self._sandbox.suspend()
            self._lengthen()
        now = Round(self.tally.rounds, operation, "supervisor", 0.0, killed=False, state=state, step=limit)
        self._told(now, lambda: None, points)
        return points.has_fired

    def _keep_one(self) -> None:
        """Make a snapshot, which some operations need."""
        made = self._sandbox.snapshot()
        self._kept[made.snapshot_id] = Kept(self._known, self._known)

    def _lengthen(self) -> None:
        """Have the sandbox, which sleeps, stand on so many layers that one more has some of them merged."""
        with contextlib.closing(sqlite3.connect(self._home.database)) as database:
            question = "SELECT json_array_length(stack) FROM sandboxes WHERE sandbox_id = ?"
            before, length = -1, 0
            # Where disks are copied there are no layers, and nothing is ever merged.
            while before < length < LONGEST:
                self._keep_one()
                before = length
                length = database.execute(question, [self._sandbox.id]).fetchone()[0]

    def _told(self, now: Round, strike: Callable[[], None], points: Points | None = None) -> None:
        try:
            self._play(now, strike, points)
        except (AssertionError, AtollError, OSError) as error:
            step = f" before {points.steps()[-1:]}" if points else ""
            raise AssertionError(
                f"{now}{step}: {type(error).__name__}: {error}\n{logs_of(self._home)}"
            ) from error
        self.tally.rounds += 1
        self.tally.outcomes[f"{now.victim}: {now.outcome}"] += 1

    def _strike_late(self, now: Round) -> None:
        time.sleep(now.delay_s)
        self._strike(now.victim)

    def _play(self, now: Round, strike: Callable[[], None], points: Points | None) -> None:
        before = self._low = self._known
        if now.operation == "wake":
            now.state = "suspended"
        if now.operation == "freeze":
            now.state = "running"
            with contextlib.suppress(SandboxCrashedError):
                self._sandbox.run(_MUCH).check()
        scribe = Scribe(self._sandbox, before) if now.state == "running" else None
        try:
            if scribe is None and now.operation not in ("pause", "suspend"):
                self._bring(now)
            argument = self._argument(now.operation)
            if points:
                supervisors = victims.supervisors(self._home)
                points.arm()  # what brought the sandbox into its state may not have ended
                points.settle()
                points.arm(now.step)
            self._client.begin(now.operation, self._sandbox.id, argument)
            strike()
            told = self._client.result()
            if points:
                points.settle()
                victims.wait_for_end(supervisors, points.has_fired)
        finally:
            promised = scribe.stop() if scribe else before
        if now.victim == "client":
            self._client.close()
            self._client = Client()
            self._until_quiet()
        if told is None:
            assert now.victim == "client", "the client died"
            now.outcome = "killed"
        else:
            now.outcome = told.get("code", "done")
            assert now.outcome not in ("internal", "not ours"), told
            refused = now.operation == "forget" and now.outcome == "in_use"
            assert now.victim != "nobody" or now.outcome == "done" or refused, told
            if now.outcome == "done":
                self._took_s[now.operation].append(told["took_s"])
        self._check(now, promised, argument, told or {})

    def _bring(self, now: Round) -> None:
        """Bring the sandbox into the state that the round begins in."""
        bring = {"paused": self._sandbox.pause, "suspended": self._sandbox.suspend}.get(now.state, int)
        try:
            bring()
        except (SandboxCrashedError, StateError):
            # What was killed in the round before answered a last time, and has ended since.
            if not now.killed:
                raise
            look(self._sandbox)
            bring()

    def _until_quiet(self) -> None:
        """Wait until the supervisor has finished what a client asked for that did not stay for the answer."""
        for _ in range(2):  # what was sent before has been read when these are answered
            Supervisor.hello()
        deadline = time.monotonic() + PATIENCE_S
        quiet = 0
        with contextlib.closing(sqlite3.connect(self._home.database)) as database:
            # Not at the first look: an operation is written down only after a few turns of the supervisor.
            while quiet < _QUIET_LOOKS:
                ended = database.execute("SELECT count(*) FROM operations").fetchone() == (0,)
                quiet = quiet + 1 if ended else 0
                assert time.monotonic() < deadline, "an operation does not end"
                time.sleep(0.02)
                Supervisor.hello()

    def _argument(self, operation: str) -> str:
        if operation in ("create", "volume", "build"):
            self._names += 1
            return f"extra-{self._names}"
        if operation in _FORKS:
            return str(self._dice.randint(1, 3))
        if operation == "promote":
            with contextlib.closing(self._sandbox.fork()[0]) as fork:
                found = look(fork)
                self._winner = Kept(found, found)
                return fork.id
        if operation == "forget":
            return next(iter(self._kept))
        if operation == "rollback":
            return self._dice.choice(self._own())
        if operation == "from_snapshot":
            return self._dice.choice(sorted(self._kept))
        return "x"

    def _own(self) -> list[str]:
        """The snapshots that were made of this sandbox, not of one that was killed before."""
        return sorted(
            {one.snapshot_id for one in Snapshots.list(sandbox=self._sandbox.id)} & self._kept.keys()
        )

    def _strike(self, victim: str) -> None:
        if victim == "supervisor":
            victims.kill_supervisor(self._home)
        elif victim == "engine":
            self._doomed = not victims.kill_engine(self._home, self._dice)
        elif victim == "agent":
            self._doomed = not victims.kill_agent(self._home, self._dice)
        elif victim == "client":
            self._client.kill()

    def _check(self, now: Round, promised: Entry, argument: str, told: dict[str, object]) -> None:
        self._check_main(now, promised, argument)
        if now.operation == "build":
            builds_and_volumes.check_build(argument, done=now.outcome == "done", doomed=now.victim == "agent")
        if now.operation == "promote":  # before snapshots are deleted, this one perhaps among them
            kept = any(argument in one.comment for one in Snapshots.list(sandbox=self._sandbox.id))
            assert kept != (argument in _ids()), f"half promoted: kept {kept}, left {_ids()}"
        self._check_snapshots(now, promised)
        self._check_others(now, promised, argument)
        builds_and_volumes.check_volumes()
        self._check_leftovers()

    def _check_main(self, now: Round, promised: Entry, argument: str) -> None:
        """The sandbox is usable, with every record that was promised, and with its memory unless that was killed."""
        if now.operation == "kill" and self._sandbox.id not in _ids():
            self._sandbox.close()
            self._sandbox = self._made()
            self._known = look(self._sandbox)
            return
        found = look(self._sandbox)
        assert not found.broken, f"the log is damaged: {found}"
        rolled = self._kept.get(argument) if now.operation == "rollback" else None
        if now.operation == "promote":
            rolled = self._winner
        if rolled is not None and rolled.has(found):
            self._known = found
            return
        if rolled is not None and now.outcome == "done":
            # It was brought back, and killed after that: what is left is the snapshot's disk.
            assert now.killed and rolled.low.durable <= found.durable <= rolled.high.durable + 1, (
                f"{found} is not {rolled}"
            )
            self._known = found
            return
        if found.run == promised.run:
            assert (now.operation, now.outcome) != ("stop", "done"), f"it still has its memory: {found}"
            low = promised.memory
            assert low <= found.memory <= low + 1, f"memory of another time: {found}, promised {promised}"
        else:
            stopped = now.operation == "stop"
            assert now.killed or stopped, f"the memory is lost: {found}, promised {promised}"
            self.tally.memory_lost += not stopped
        # A rollback may have come before a crash: then the disk is that of the snapshot, or later.
        low = min(promised.durable, rolled.low.durable) if rolled else promised.durable
        assert low <= found.durable <= promised.durable + 1, f"records are lost: {found}, promised {promised}"
        self._known = found

    def _check_snapshots(self, now: Round, promised: Entry) -> None:
        """Those that were there are there, and one that was being made is whole or not there."""
        there = {one.snapshot_id for one in Snapshots.list()}
        lost = set(self._kept) - there
        assert now.operation == "forget" or not lost, f"snapshots are lost: {lost}"
        for snapshot_id in lost:
            del self._kept[snapshot_id]
        made = there - set(self._kept)
        makes = now.operation in ("snapshot", "promote")
        assert len(made) <= makes, f"nobody made snapshots {made}"
        if makes and now.outcome == "done":
            assert made, "the snapshot that was made is not there"
        for snapshot_id in made:
            self._kept[snapshot_id] = Kept(self._before(promised), promised)
            try:
                with Sandbox.create(Snapshot(snapshot_id)) as copy:
                    found = look(copy)
                    assert self._kept[snapshot_id].has(found), f"{found} is not of {self._kept[snapshot_id]}"
            except (SandboxCrashedError, EngineError):
                # An agent that was killed while it stood still dies as soon as it goes on, in the copy too.
                assert now.victim == "agent", now
                Snapshots.delete(snapshot_id)
                del self._kept[snapshot_id]
        for snapshot_id in sorted(self._kept)[_SNAPSHOTS_MOST:]:
            with contextlib.suppress(AtollError):  # a sandbox may stand on it
                Snapshots.delete(snapshot_id)
                del self._kept[snapshot_id]

    def _before(self, promised: Entry) -> Entry:
        return self._low if self._low.run == promised.run else promised

    def _check_others(self, now: Round, promised: Entry, argument: str) -> None:
        """What else was made is usable, whole, and can be killed."""
        others = _ids() - {self._sandbox.id}
        if now.outcome == "done" and now.operation in ("create", *_FORKS, "from_snapshot"):
            wanted = int(argument) if now.operation in _FORKS else 1
            assert len(others) == wanted or now.killed, f"{len(others)} sandboxes were made"
        for sandbox_id in others:
            assert now.operation in ("create", *_FORKS, "promote", "from_snapshot", "volume"), (
                f"nobody made {sandbox_id}"
            )
            try:
                with Sandbox.connect(sandbox_id, wake=False) as other:
                    found = look(other)
                    assert not found.broken
                    origin = Kept(self._before(promised), promised) if now.operation in _FORKS else None
                    origin = self._kept[argument] if now.operation == "from_snapshot" else origin
                    origin = self._winner if now.operation == "promote" else origin
                    same = origin is None or origin.has(found)
                    assert same or now.killed, f"{found} is no copy of {origin}"
                    other.kill()
            except SandboxNotFoundError:  # what was made for a client that was killed is killed as well
                assert now.outcome == "killed", now

    def _check_leftovers(self) -> None:
        """Nothing is left over, once what is erased in the background is."""
        deadline = time.monotonic() + PATIENCE_S
        while left := Supervisor.leftovers():
            assert time.monotonic() < deadline, f"left over: {left}"
            time.sleep(0.05)
        assert len(victims.supervisors(self._home)) == 1

    def _made(self) -> Sandbox:
        made = Sandbox.create(keep=True, lifecycle=Lifecycle(on_expiry="suspend"))
        begin(made)
        return made


def _ids() -> set[str]:
    return {one.sandbox_id for one in Sandbox.list()}
