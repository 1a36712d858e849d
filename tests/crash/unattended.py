"""Rounds of sandboxes that are left alone: they sleep, are stored and come back unasked while something is killed."""

from __future__ import annotations

import contextlib
import math
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from atoll import (
    AtollError,
    Boot,
    Lifecycle,
    Sandbox,
    SandboxInfo,
    Snapshot,
    SnapshotInfo,
    Snapshots,
    Supervisor,
    Volumes,
)
from atoll.errors import EngineError, SandboxCrashedError
from atoll.host import Home
from atoll.types import OnCrash
from tests.crash import victims
from tests.crash.ledger import PATIENCE_S, Entry, Scribe, begin, look
from tests.crash.rounds import Kept, Tally
from tests.crash.worker import Client
from tests.homes import logs_of

_KEPT = 2
_PAUSE_S, _SUSPEND_S = 0.4, 1.0
# What happens to a sandbox without a use, and what a crash means for it.
PROFILES: dict[str, tuple[Lifecycle, OnCrash]] = {
    "sleeps": (Lifecycle(idle_pause_s=_PAUSE_S, idle_suspend_s=_SUSPEND_S), "reboot"),
    "boots": (Lifecycle(auto_recover=True), "reboot"),
    "is stored": (Lifecycle(snapshot_every_s=1, snapshots_kept=_KEPT), "rollback"),
    "all": (
        Lifecycle(idle_pause_s=_PAUSE_S, idle_suspend_s=_SUSPEND_S, snapshot_every_s=1, snapshots_kept=_KEPT),
        "rollback",
    ),
}
_USES = ("nothing", "nothing", "exec", "files", "wake", "suspend")
_WORKS_MOST_S, _ALONE_MOST_S, _REST_MOST_S = 1.2, 2.0, 0.6
# Each recovery in a row waits longer than the one before.
_RECOVERIES_MOST = 2
_DATA, _COPIES = "/data", "of-copies"
_MEMORY_LOST = "memory lost: "


@dataclass
class Ward:
    """A sandbox that is looked after by nobody, and what it has promised.

    Attributes:
        told: Its ledger's answers and when they came, in Unix seconds, across all its lives.
        made_at: When each of its snapshots was made, gone ones too, oldest first.
    """

    profile: str
    sandbox: Sandbox
    told: list[tuple[float, Entry]] = field(default_factory=list)
    made_at: dict[str, float] = field(default_factory=dict)

    @property
    def promised(self) -> Entry:
        """What it has promised last."""
        return self.told[-1][1]

    def hears(self, entry: Entry) -> None:
        """Note an answer."""
        self.told.append((time.time(), entry))

    def note(self, made: list[SnapshotInfo]) -> None:
        """Note its snapshots, and forget what its newest ones cannot be of any more."""
        for one in sorted(made, key=lambda each: each.created_at):
            self.made_at.setdefault(one.snapshot_id, one.created_at)
        newest = self.newest(_KEPT * 4)
        self.made_at = {each: self.made_at[each] for each in newest}
        if len(newest) == _KEPT * 4:
            since = self.made_at[newest[0]]
            first = max((number for number, (at, _) in enumerate(self.told) if at <= since), default=0)
            del self.told[:first]

    def newest(self, most: int) -> list[str]:
        """Its newest snapshots, gone ones too, newest last."""
        return sorted(self.made_at, key=lambda each: self.made_at[each])[-most:]

    def lives(self, snapshot_id: str) -> list[Kept]:
        """What its ledger said when a snapshot may have been taken: from when to when in each life of its program.

        The snapshot was taken after the one before it was begun, and before the next one was. If it came back from
        that one in between, and nothing was written since, it says what that one says.
        """
        begun = self.made_at[snapshot_id]
        until = min((at for at in self.made_at.values() if at > begun), default=math.inf)
        since = self._since(snapshot_id)
        before = max((number for number, (at, _) in enumerate(self.told) if at <= since), default=0)
        lives: dict[tuple[str, int], list[Entry]] = {}
        for at, entry in self.told[before:]:
            if at <= until or not lives:
                lives.setdefault((entry.run, entry.durable - entry.memory), []).append(entry)
        return [Kept(min(life, key=_in_memory), max(life, key=_in_memory)) for life in lives.values()]

    def could_be(self, snapshot_id: str, found: Entry) -> bool:
        """Whether a ledger that was brought back from that snapshot may say this."""
        lives = self.lives(snapshot_id)
        if any(life.has(found) for life in lives):
            return True
        is_first = self.told[0][0] > self._since(snapshot_id)
        if not is_first and len({life.low.run for life in lives}) == 1:
            return False
        # It was taken before the ledger's program ran, or ran again, and that was started for this answer.
        least = 0 if is_first else min(life.low.durable for life in lives)
        return found.memory == 0 and least <= found.durable <= max(life.high.durable for life in lives) + 1

    def _since(self, snapshot_id: str) -> float:
        begun = self.made_at[snapshot_id]
        return max(sorted(at for at in self.made_at.values() if at < begun)[:-1], default=0.0)


def _in_memory(entry: Entry) -> int:
    return entry.memory


@dataclass
class Round:
    """One round, told when something is wrong with it."""

    number: int
    victim: str
    works: list[str]
    works_s: float
    alone_s: float
    use: str
    used: str
    again_s: float | None
    rest_s: float
    doomed: bool = False
    killed: bool = False
    began_at: float = 0.0
    states: dict[str, str] = field(default_factory=dict)
    stored_at: dict[str, float] = field(default_factory=dict)
    outcome: str = ""


class UnattendedRounds:
    """Plays rounds in a home; the same seed plays the same choices.

    Args:
        path: The home, named by ``ATOLL_HOME``.
        seed: Of everything that is left to chance.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self.tally = Tally()
        self._home = Home(path)
        self._dice = random.Random(seed)
        self._client = Client()
        # A guest whose agent was killed while it was frozen ends later, when it is thawed.
        self._doomed = False
        self._volumes = 0
        Volumes.create(_COPIES)
        self._wards = {profile: self._made(profile) for profile in PROFILES}

    def close(self) -> None:
        """Let go of everything but the home."""
        self._client.close()
        for ward in self._wards.values():
            ward.sandbox.close()

    def play(self) -> None:
        """Play one round.

        Raises:
            AssertionError: A promise was broken; the message tells the round.
        """
        dice, names = self._dice, list(PROFILES)
        now = Round(
            number=self.tally.rounds,
            victim=dice.choice(victims.VICTIMS),
            works=dice.sample(names, dice.randint(0, len(names))),
            works_s=dice.uniform(0, _WORKS_MOST_S),
            alone_s=dice.uniform(0, _ALONE_MOST_S),
            use=dice.choice(_USES),
            used=dice.choice(names),
            again_s=dice.choice([None, None, dice.uniform(0, 0.5)]),
            rest_s=dice.uniform(0, _REST_MOST_S),
        )
        if now.victim == "client" and now.use == "nothing":
            now.use = "exec"
        now.doomed = self._doomed
        now.killed = now.victim in ("engine", "agent") or now.doomed
        self._doomed = False
        try:
            self._play(now)
        except (AssertionError, AtollError, OSError) as error:
            raise AssertionError(f"{now}: {type(error).__name__}: {error}\n{logs_of(self._home)}") from error
        self.tally.rounds += 1
        self.tally.outcomes[f"{now.victim}: {now.outcome}"] += 1

    def _play(self, now: Round) -> None:
        now.began_at = time.time()
        scribes = {name: self._scribe(now, self._wards[name]) for name in now.works}
        time.sleep(now.works_s)
        idle = [name for name in now.works if self._dice.random() < 0.5]
        for name in idle:
            self._stop(name, scribes.pop(name))
        time.sleep(now.alone_s)
        # What is told here was acknowledged: who sleeps has its memory, and a snapshot that is listed stays.
        now.states = {name: self._info(ward).state for name, ward in self._wards.items()}
        self._note_snapshots()
        now.stored_at = {name: max(ward.made_at.values(), default=0.0) for name, ward in self._wards.items()}
        if now.use != "nothing":
            self._client.begin(now.use, self._wards[now.used].sandbox.id, "x")
            time.sleep(self._dice.uniform(0, 0.2))
        self._strike(now.victim)
        if now.again_s is not None and now.victim != "nobody":
            time.sleep(now.again_s)
            victims.kill_supervisor(self._home)
        for name, scribe in scribes.items():
            self._stop(name, scribe)
        self._answered(now)
        self._settle(now)
        for name, ward in self._wards.items():
            self._check(now, name, ward)
        self._check_leftovers()
        for name in list(self._wards):
            self._renew(name)

    def _scribe(self, now: Round, ward: Ward) -> Scribe:
        entry = look(ward.sandbox)
        assert entry.run == ward.promised.run or now.killed, f"{entry} in place of {ward.promised}"
        ward.hears(entry)
        return Scribe(ward.sandbox, entry)

    def _stop(self, name: str, scribe: Scribe) -> None:
        scribe.stop()
        self._wards[name].told += scribe.told

    def _strike(self, victim: str) -> None:
        if victim == "supervisor":
            victims.kill_supervisor(self._home)
        elif victim == "engine":
            self._doomed = not victims.kill_engine(self._home, self._dice)
        elif victim == "agent":
            self._doomed = not victims.kill_agent(self._home, self._dice)
        elif victim == "client":
            self._client.kill()

    def _answered(self, now: Round) -> None:
        now.outcome = "nothing asked"
        if now.use != "nothing":
            told = self._client.result()
            if told is None:
                assert now.victim == "client", "the client died"
                now.outcome = "killed"
            else:
                now.outcome = told.get("code", "done")
                assert now.outcome not in ("internal", "not ours"), told
                assert now.victim != "nobody" or now.outcome == "done", told
        if now.victim == "client":
            self._client.close()
            self._client = Client()

    def _settle(self, now: Round) -> None:
        """Leave the sandboxes alone for a moment more, and then until what crashed while it ran has come back."""
        time.sleep(now.rest_s)
        deadline = time.monotonic() + PATIENCE_S
        for name, ward in self._wards.items():
            lifecycle, _ = PROFILES[name]
            ran = now.states[name] == "running" and (now.use == "nothing" or now.used != name)
            if not ran or not lifecycle.recovers or lifecycle.idle_pause_s is not None or self._doomed:
                continue
            while (info := self._info(ward)).state == "crashed":
                assert time.monotonic() < deadline, f"{name!r} does not come back: {info}"
                time.sleep(0.05)

    def _check(self, now: Round, name: str, ward: Ward) -> None:
        """It is usable, with all that it promised, unless its memory was killed."""
        _, on_crash = PROFILES[name]
        promised = ward.promised
        found = look(ward.sandbox)
        assert not found.broken, f"{name!r} has a damaged log: {found}"
        # What it was writing when it was stored, it writes again when it comes back: there may be more.
        assert promised.volume <= found.volume, (
            f"{name!r} lost records on its volume: {found}, promised {promised}"
        )
        kept = Kept(promised, promised).has(found)
        if not kept:
            assert now.killed, f"{name!r} lost its memory: {found}, promised {promised}"
            slept = now.states[name] == "suspended" and (now.use == "nothing" or now.used != name)
            assert not slept, f"{name!r} slept and lost its memory: {found}, promised {promised}"
            self._check_recovered(now, name, ward, found, on_crash)
            self.tally.memory_lost += 1
        ward.hears(found)
        self._check_snapshots(now, name, ward)

    def _check_recovered(self, now: Round, name: str, ward: Ward, found: Entry, on_crash: OnCrash) -> None:
        """It went on as ``on_crash`` says, and says so."""
        promised, recovered = ward.promised, self._info(ward).recovered
        how = recovered.how if recovered and recovered.at > now.began_at else "by hand"
        # Whose agent was killed while it stood still ends at every wake, until its memory is given up.
        assert how != "by hand" or now.victim == "agent" or now.doomed, (
            f"{name!r} does not come back: {recovered}"
        )
        unasked = "unasked" if recovered and recovered.automatic else "when used"
        self.tally.outcomes[f"{_MEMORY_LOST}{name}, back from {how} {unasked}"] += 1
        if how == "snapshot" and on_crash == "rollback":
            assert recovered is not None
            assert recovered.snapshot_id is not None
            self._note_snapshots()
            assert recovered.snapshot_id in ward.made_at, f"{recovered} is of an unknown snapshot"
            assert ward.made_at[recovered.snapshot_id] >= now.stored_at[name], (
                f"{recovered!r} is not of the newest snapshot"
            )
            assert ward.could_be(recovered.snapshot_id, found), (
                f"{name!r} came back from {recovered} as {found}, not {ward.lives(recovered.snapshot_id)}"
            )
            return
        assert how in ("disk", "by hand"), f"{on_crash} came back by {recovered}"
        assert found.run != promised.run, f"memory of another time: {found}, promised {promised}"
        assert promised.durable <= found.durable <= promised.durable + 1, (
            f"{name!r} lost records: {found}, promised {promised}"
        )

    def _note_snapshots(self) -> None:
        """See that every snapshot that was listed before is there, or newer ones in its place."""
        for name, ward in self._wards.items():
            made = Snapshots.list(sandbox=ward.sandbox.id)
            there = {one.snapshot_id for one in made}
            newest = ward.newest(_KEPT)
            ward.note(made)
            lost = (set(newest) & set(ward.newest(_KEPT))) - there
            assert not lost, f"{name!r} lost its newest snapshots {lost}"

    def _check_snapshots(self, now: Round, name: str, ward: Ward) -> None:
        """Its newest snapshot restores."""
        self._note_snapshots()
        if not ward.made_at or self._dice.random() < 0.5:
            return
        (snapshot_id,) = ward.newest(1)
        try:
            with Sandbox.create(Snapshot(snapshot_id), volumes={_DATA: _COPIES}) as copy:
                found = look(copy)
        except (SandboxCrashedError, EngineError):
            # An agent that was killed while it stood still dies as soon as it goes on, in the copy too.
            assert now.killed, f"the snapshot of {name!r} does not start"
            return
        assert ward.could_be(snapshot_id, found), (
            f"a copy of {name!r} from {snapshot_id} is {found}, not {ward.lives(snapshot_id)}"
        )

    def _check_leftovers(self) -> None:
        """Nothing is left over, once what is erased in the background is."""
        deadline = time.monotonic() + PATIENCE_S
        while left := Supervisor.leftovers():
            assert time.monotonic() < deadline, f"left over: {left}"
            time.sleep(0.05)
        assert len(victims.supervisors(self._home)) == 1

    def _renew(self, name: str) -> None:
        """Have another one in place of what has come back too often, and now and then anyway."""
        ward = self._wards[name]
        recovered = self._info(ward).recovered
        if (recovered is None or recovered.times < _RECOVERIES_MOST) and self._dice.random() > 0.05:
            return
        ward.sandbox.kill()
        ward.sandbox.close()
        self._wards[name] = self._made(name)

    def _made(self, profile: str) -> Ward:
        lifecycle, on_crash = PROFILES[profile]
        for volume in Volumes.list():
            if volume.name != _COPIES:
                with contextlib.suppress(AtollError):  # the others are in use
                    Volumes.delete(volume.volume_id)
        self._volumes += 1
        volume_name = f"volume-{self._volumes}"
        Volumes.create(volume_name)
        made = Sandbox.create(
            keep=True, lifecycle=lifecycle, boot=Boot(on_crash=on_crash), volumes={_DATA: volume_name}
        )
        begin(made)
        ward = Ward(profile, made)
        ward.hears(look(made))
        return ward

    def _info(self, ward: Ward) -> SandboxInfo:
        return Sandbox.get(ward.sandbox.id)
