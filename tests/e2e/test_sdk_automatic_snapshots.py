"""Snapshots that nobody asks for."""

from __future__ import annotations

import time
from pathlib import Path

from tests.e2e.command_line import said
from tests.homes import kill_machines
from tests.waiting import until

from atoll import Boot, Lifecycle, Sandbox, SnapshotInfo, Snapshots

OFTEN = Lifecycle(snapshot_every_s=1, snapshots_kept=1)
# It works now and then: snapshots take at most a tenth of the time, so one that is slow delays the next tenfold.
BUSY = """import itertools, time
for number in itertools.count():
    open('/home/user/number', 'w').write(str(number))
    time.sleep(0.01)
"""


def made_of(sandbox: Sandbox) -> list[SnapshotInfo]:
    return Snapshots.list(sandbox=sandbox.id)


def test_what_works_gets_new_ones_and_loses_old_ones_and_what_waits_gets_none(home: Path) -> None:
    del home
    with (
        Sandbox.create(lifecycle=OFTEN) as idle,
        Sandbox.create(name="busy", lifecycle=OFTEN) as busy,
    ):
        own = busy.snapshot(name="own")
        busy.processes.start(f'python3 -c "{BUSY}"')
        seen: dict[str, SnapshotInfo] = {}

        def enough() -> bool:
            seen.update(
                {each.snapshot_id: each for each in made_of(busy) if each.snapshot_id != own.snapshot_id}
            )
            return len(seen) > 1

        until(enough)
        first = min(seen.values(), key=lambda each: each.created_at)
        assert all(each.automatic for each in seen.values())
        until(lambda: first.snapshot_id not in {each.snapshot_id for each in made_of(busy)})
        assert own.snapshot_id in {each.snapshot_id for each in made_of(busy)}
        assert "automatic" in said("snapshot", "ls", "--sandbox", "busy")
        assert "automatically every 1 s" in said("info", "busy")
        # What its start left to be done may have been one change.
        until(lambda: len(made_of(idle)) <= 1)
        newest = busy.info().snapshot_id
        assert newest is not None
        with busy.fork(1)[0] as copy:
            assert int(copy.run("cat /home/user/number").stdout or 0) >= 0
        assert busy.info().snapshot_failed is None


def test_an_engine_that_was_killed_comes_back_with_the_newest_snapshots_memory_unasked(home: Path) -> None:
    lifecycle = Lifecycle(snapshot_every_s=1)
    with Sandbox.create(name="work", lifecycle=lifecycle, boot=Boot(on_crash="rollback")) as sandbox:
        # In memory, which a boot would lose.
        sandbox.run("echo kept >/tmp/kept; sleep 1000 & echo $! >/tmp/pid")
        sandbox.keep_awake(0)  # waits for a snapshot that is being made
        written = time.time()
        until(lambda: any(each.created_at > written for each in made_of(sandbox)))
        kill_machines(home)
        until(lambda: sandbox.info().recovered is not None)
        until(lambda: sandbox.info().state == "running")
        recovered = sandbox.info().recovered
        assert recovered is not None
        assert (recovered.how, recovered.automatic) == ("snapshot", True)
        assert recovered.snapshot_id in {each.snapshot_id for each in made_of(sandbox)}
        assert recovered.age_s is not None
        told = sandbox.run("cat /tmp/kept; kill -0 $(cat /tmp/pid) && echo runs").stdout
        assert told == "kept\nruns\n"
        assert "automatically every" in said("info", "work")
