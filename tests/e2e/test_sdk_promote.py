"""Promoting a fork: the original goes on from its state, and what it was is kept."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.e2e.counter import count, start_counter

from atoll import AtollError, Limits, Sandbox, SnapshotInfo, Snapshots
from atoll.errors import InvalidSpecError, NameTakenError, SandboxNotFoundError, UnpluggedError

pytestmark = pytest.mark.twice

_STATES = [("running", "running"), ("paused", "suspended"), ("suspended", "paused")]


def asleep(sandbox: Sandbox, state: str) -> None:
    """Bring a running sandbox into a state."""
    {"running": sandbox.info, "paused": sandbox.pause, "suspended": sandbox.suspend}[state]()


@pytest.mark.parametrize(("original", "winner"), _STATES)
def test_the_original_goes_on_from_the_winner_and_what_it_was_is_kept(
    module_home: Path, original: str, winner: str
) -> None:
    with Sandbox.create(name=f"work-{original}", metadata={"of": "work"}) as work:
        start_counter(work)
        work.files.write("file", "original")
        (fork,) = work.fork()
        assert [count(fork) for _ in range(3)] == [2, 3, 4]
        fork.files.write("file", "winner")
        assert count(work) == 2
        asleep(work, original)
        asleep(fork, winner)
        kept = work.promote(fork, f"kept-{original}")
        assert (kept.sandbox_id, kept.name) == (work.id, f"kept-{original}")
        assert count(work) == 5
        assert work.files.read("file") == "winner"
        assert work.run("hostname").stdout == f"work-{original}\n"
        info = Sandbox.get(f"work-{original}")
        assert (info.sandbox_id, info.state, info.metadata) == (work.id, "running", {"of": "work"})
        with fork, pytest.raises(SandboxNotFoundError) as gone:
            fork.run("true")
        assert f"work-{original}" in str(gone.value.hint)
        assert [each.sandbox_id for each in Sandbox.list()] == [work.id]
        with Sandbox.create(kept) as loser:
            assert count(loser) == 3
            assert loser.files.read("file") == "original"
        work.rollback(kept)
        assert count(work) == 3
    Snapshots.delete(kept.snapshot_id)


def test_what_a_fork_was_given_does_not_widen_what_its_original_may(module_home: Path) -> None:
    with Sandbox.create(network="none", limits=Limits(processes=300)) as work:
        (fork,) = work.fork()
        fork.set_network("internet")
        fork.set_limits(Limits(processes=900))
        with fork:
            kept = work.promote(fork)
        assert work.info().network == "none"
        assert work.info().limits.processes == 300
        assert work.run("echo on").stdout == "on\n"
    Snapshots.delete(kept.snapshot_id)


def test_a_promotion_that_is_refused_changes_nothing(module_home: Path) -> None:
    with Sandbox.create() as work:
        start_counter(work)
        taken = work.snapshot("taken")
        (fork,) = work.fork()
        with pytest.raises(InvalidSpecError, match="the same sandbox"):
            work.promote(work)
        with pytest.raises(NameTakenError):
            work.promote(fork, "taken")
        with pytest.raises(SandboxNotFoundError):
            work.promote("nobody")
        fork.unplug("look at it")
        with pytest.raises(UnpluggedError):
            work.promote(fork)
        fork.replug()
        assert (count(work), count(fork)) == (2, 2)
        assert [each.snapshot_id for each in work.snapshots()] == [taken.snapshot_id]
        fork.kill()
    Snapshots.delete(taken.snapshot_id)


def test_promotions_at_once_come_one_after_the_other(module_home: Path) -> None:
    """Also while programs run, whose callers hear that their sandbox went elsewhere."""
    with Sandbox.create() as work:
        start_counter(work)
        first, second = forks = work.fork(2)
        for number, fork in enumerate(forks):
            fork.files.write("file", str(number))
        told: list[SnapshotInfo | AtollError] = []

        def promote(fork: Sandbox, into: Sandbox) -> None:
            try:
                told.append(into.promote(fork.id))
            except AtollError as error:
                told.append(error)

        def wait() -> None:
            try:
                work.run("sleep 600")
            except AtollError as error:
                told.append(error)

        pairs = [(first, work), (second, work)]
        with Sandbox.connect(work.id) as other:
            waiting = threading.Thread(target=wait)
            waiting.start()
            while other.run("pgrep -x sleep").exit_code:
                pass
            threads = [threading.Thread(target=promote, args=pair) for pair in pairs]
            for thread in threads:
                thread.start()
            for thread in (*threads, waiting):
                thread.join()
        kept = [each for each in told if isinstance(each, SnapshotInfo)]
        assert len(kept) == 2
        assert len(told) == 3
        assert work.files.read("file") in "01"
        assert count(work) == 2
        assert [each.sandbox_id for each in Sandbox.list()] == [work.id]
        for fork in forks:
            fork.close()
        texts = set()
        for one in kept:
            with Sandbox.create(one) as copy:
                texts.add(copy.run("cat file").stdout)
        assert "" in texts, "the first of them kept what the original was"
        assert len(texts) == 2
    for one in sorted(kept, key=lambda each: each.created_at, reverse=True):
        Snapshots.delete(one.snapshot_id)
