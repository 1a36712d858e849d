"""Sandboxes that come and go: whatever a client may do with one is done with one of them at random."""

from __future__ import annotations

import contextlib
import random
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from atoll import AtollError, Boot, Lifecycle, Sandbox, Snapshots, Volumes
from atoll.errors import SandboxNotFoundError
from atoll.host import Home
from atoll.types import OnCrash
from tests.crash import victims

# How sandboxes live that nobody looks after. Most are as they are by default.
_LIVES: list[tuple[Lifecycle, OnCrash]] = [
    (Lifecycle(), "reboot"),
    (Lifecycle(), "reboot"),
    (Lifecycle(idle_pause_s=1, idle_suspend_s=3), "reboot"),
    (Lifecycle(idle_suspend_s=2, auto_recover=True), "reboot"),
    (Lifecycle(snapshot_every_s=2, snapshots_kept=2), "rollback"),
    (Lifecycle(idle_pause_s=2, idle_suspend_s=5, snapshot_every_s=2, snapshots_kept=1), "rollback"),
]
# What elders are like: they stay from the first to the last moment.
_ELDERS = _LIVES[2:]
_WORK = "head -c 2000000 /dev/urandom > /tmp/work; for i in 1 2 3; do sha256sum /tmp/work; done"
_SNAPSHOTS_MOST = 12
_WORKERS = 4
# What may become of a call beside all the others: its sandbox was killed, its snapshot removed or is needed.
_USUAL = {
    "sandbox_crashed",
    "sandbox_not_found",
    "snapshot_not_found",
    "wrong_state",
    "in_use",
    "exec_failed",
    "process_not_found",
    # A snapshot of a sandbox with a volume outlives the volume.
    "volume_not_found",
}
# And so soon after an engine was killed, which may just have been started.
_OF_KILLED = {"engine_failed", "agent_failed"}
_KILLED_S = 20.0


class Population:
    """So many sandboxes, of which some are elders.

    Args:
        home: The home that they are in.
        live: How many there are.
        seed: Of everything that is left to chance.

    Attributes:
        done: How often each thing was done, and what else became of it.
        took_s: How long things took that people wait for.
    """

    def __init__(self, home: Home, live: int, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.took_s: dict[str, list[float]] = defaultdict(list)
        self._home = home
        self._live = live
        self._dice = random.Random(seed)
        self._lock = threading.Lock()
        self._taken: set[str] = set()
        self._names = 0
        self._killed_s = -_KILLED_S
        self.elders = [
            Sandbox.create(keep=True, lifecycle=lifecycle, boot=Boot(on_crash=on_crash)).id
            for lifecycle, on_crash in _ELDERS[: max(2, live // 10)]
        ]
        self._actions: list[tuple[int, Callable[[], None]]] = [
            (16, self._create),
            (6, self._fork),
            (24, self._exec),
            (4, self._work),
            (8, self._files),
            (10, self._suspend),
            (14, self._wake),
            (4, self._pause),
            (6, self._snapshot),
            (4, self._roll_back),
            (5, self._forget),
            (6, self._kill),
            (2, self._look),
            (2, self._lease),
            (2, self._awake),
            (2, self._volume),
            (1, self._kill_engine),
        ]

    def churn(self, until_s: float) -> None:
        """Do things at random until that moment of the monotonic clock."""
        with ThreadPoolExecutor(_WORKERS) as workers:
            for worker in [workers.submit(self._churn, until_s) for _ in range(_WORKERS)]:
                worker.result()

    def empty(self) -> None:
        """Kill all but the elders, put these to sleep, and remove what can be removed."""
        for one in list(Sandbox.list()):
            with (
                contextlib.suppress(SandboxNotFoundError),
                Sandbox.connect(one.sandbox_id, wake=False) as each,
            ):
                if one.sandbox_id in self.elders:
                    each.resume()
                    each.suspend()
                else:
                    each.kill()
        before = -1
        while (snapshots := Snapshots.list()) and len(snapshots) != before:
            before = len(snapshots)
            for snapshot in sorted(snapshots, key=lambda one: one.created_at, reverse=True):
                with contextlib.suppress(AtollError):  # an elder stands on it
                    Snapshots.delete(snapshot.snapshot_id)
        for volume in Volumes.list():
            Volumes.delete(volume.volume_id)

    def states(self) -> Counter[str]:
        """How many sandboxes there are in each state."""
        return Counter(one.state for one in Sandbox.list())

    def _churn(self, until_s: float) -> None:
        weights = [weight for weight, _ in self._actions]
        while time.monotonic() < until_s:
            with self._lock:
                ((_, action),) = self._dice.choices(self._actions, weights)
                lacks = self._live - sum(self.states().values()) if self._dice.random() < 0.3 else 0
            action = self._create if lacks > 0 else self._kill if lacks < 0 else action
            name = action.__name__.strip("_")
            try:
                action()
                self.done[name] += 1
            except AtollError as error:
                soon = time.monotonic() - self._killed_s < _KILLED_S
                if error.code not in _USUAL and not (soon and error.code in _OF_KILLED):
                    raise AssertionError(f"{name}: {error.code}: {error}") from error
                self.done[f"{name}: {error.code}"] += 1

    @contextlib.contextmanager
    def _any(self, *, elders: bool = True) -> Iterator[Sandbox]:
        """One that nobody else here has in hand."""
        with self._lock:
            there = [one.sandbox_id for one in Sandbox.list()]
            free = [one for one in there if one not in self._taken and (elders or one not in self.elders)]
            if not free:
                raise SandboxNotFoundError("all are in somebody's hands")
            chosen = self._dice.choice(free)
            self._taken.add(chosen)
        try:
            with Sandbox.connect(chosen, wake=False) as sandbox:
                yield sandbox
        finally:
            with self._lock:
                self._taken.discard(chosen)

    @contextlib.contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        began_s = time.monotonic()
        yield
        self.took_s[what].append(time.monotonic() - began_s)

    def _create(self) -> None:
        lifecycle, on_crash = self._dice.choice(_LIVES)
        snapshots = Snapshots.list()
        source = self._dice.choice(snapshots) if snapshots and self._dice.random() < 0.3 else None
        with Sandbox.create(source, keep=True, lifecycle=lifecycle, boot=Boot(on_crash=on_crash)) as made:
            made.run("echo made > /home/user/made").check()

    def _fork(self) -> None:
        if sum(self.states().values()) > self._live:
            return
        with self._any() as sandbox:
            for copy in sandbox.fork(self._dice.randint(1, 2)):
                copy.close()

    def _exec(self) -> None:
        with self._any() as sandbox:
            sandbox.resume()
            with self._timed("exec"):
                sandbox.exec(["true"])

    def _work(self) -> None:
        with self._any() as sandbox:
            sandbox.run(_WORK)

    def _files(self) -> None:
        with self._any() as sandbox:
            sandbox.files.write("/home/user/file", "x" * self._dice.randint(1, 300_000))
            sandbox.files.read("/home/user/file")

    def _suspend(self) -> None:
        with self._any() as sandbox, self._timed("suspend"):
            sandbox.suspend()

    def _wake(self) -> None:
        with self._any() as sandbox:
            sandbox.suspend()
            with self._timed("wake"):
                sandbox.exec(["true"])

    def _pause(self) -> None:
        with self._any() as sandbox:
            if sandbox.info().state == "running":
                sandbox.pause()

    def _snapshot(self) -> None:
        if len(Snapshots.list()) > _SNAPSHOTS_MOST:
            self._forget()
            return
        with self._any(elders=False) as sandbox:
            sandbox.snapshot()

    def _roll_back(self) -> None:
        with self._any() as sandbox:
            own = Snapshots.list(sandbox=sandbox.id)
            if own:
                sandbox.rollback(self._dice.choice(own))

    def _forget(self) -> None:
        snapshots = Snapshots.list()
        if snapshots:
            Snapshots.delete(self._dice.choice(snapshots).snapshot_id)

    def _kill(self) -> None:
        with self._any(elders=False) as sandbox:
            sandbox.kill()

    def _look(self) -> None:
        with self._any() as sandbox:
            sandbox.stats()
            list(sandbox.logs())

    def _lease(self) -> None:
        with self._any(elders=False) as sandbox:
            sandbox.set_lease(self._dice.choice([0, 1, 600]))

    def _awake(self) -> None:
        with self._any() as sandbox:
            sandbox.keep_awake(self._dice.choice([0, 2]))

    def _volume(self) -> None:
        with self._lock:
            self._names += 1
            name = f"volume-{self._names}"
        Volumes.create(name)
        with Sandbox.create(volumes={"/data": name}) as made:
            made.run("echo kept > /data/file").check()
            made.suspend()
            made.run("cat /data/file").check()
        Volumes.delete(name)

    def _kill_engine(self) -> None:
        with self._lock:
            dice = random.Random(self._dice.random())
        victims.kill_engine(self._home, dice)
        self._killed_s = time.monotonic()


def median_ms(times_s: list[float]) -> float:
    """The median, in milliseconds; 0 of none."""
    return statistics.median(times_s) * 1000 if times_s else 0.0
