"""When idle processors are kept quick to wake."""

from __future__ import annotations

import asyncio

from atoll.host import CpuLatency
from atoll.supervisor.monitors.cpu_latency import LatencyMonitor
from atoll.supervisor.state.tasks import Tasks


class Asked(CpuLatency):
    """A request that only notes what becomes of it."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def request(self) -> None:
        self.told.append("request")

    def withdraw(self) -> None:
        self.told.append("withdraw")

    def close(self) -> None:
        self.told.append("close")


class Host:
    """A host of four processors whose time and use a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.used_s: float | None = 7.0
        self.asked = Asked()
        self.watch = LatencyMonitor(self.asked, lambda: self.used_s, 4, lambda: self.now_s)

    def later(self, seconds: float, share: float = 0.0) -> list[str]:
        """What is told at the next look, so much later, after so much of all processors' time was used."""
        self.now_s += seconds
        if self.used_s is not None:
            self.used_s += seconds * 4 * share
        self.watch.look()
        told = self.asked.told.copy()
        self.asked.told.clear()
        return told


def test_an_operation_is_quick_and_so_is_what_follows_it_at_once() -> None:
    host = Host()
    host.watch.note()
    host.watch.note()
    assert host.later(0.9) == ["request"]
    assert host.later(0.2) == ["withdraw"]
    assert host.later(0.2) == []


def test_an_operation_that_takes_long_keeps_nobody_awake() -> None:
    host = Host()
    host.watch.note()
    host.later(0.5)
    assert host.later(30.0) == ["withdraw"]


def test_sandboxes_that_compute_are_quick_until_they_do_no_more() -> None:
    host = Host()
    assert host.later(0.25, 0.10) == []
    assert host.later(0.25, 0.15) == ["request"]
    assert host.later(0.25, 0.07) == []
    assert host.later(0.25, 0.05) == ["withdraw"]
    assert host.later(0.25, 0.10) == []


def test_a_sum_that_shrinks_or_is_not_known_is_no_work() -> None:
    host = Host()
    host.later(0.25, 0.5)
    host.used_s = 0.0
    assert host.later(0.25) == ["withdraw"]
    assert host.later(0.25, 0.5) == ["request"]
    host.used_s = None
    assert host.later(0.25) == ["withdraw"]


def test_the_request_begins_with_each_operation_and_ends_with_the_watch() -> None:
    host = Host()

    async def play() -> None:
        tasks = Tasks(host.watch.note)
        watching = tasks.watch(host.watch.run())
        await asyncio.sleep(0)
        assert host.asked.told == []
        await tasks.run(asyncio.sleep(0))
        assert host.asked.told == ["request"]
        await tasks.finish(5.0)
        assert watching.done()

    asyncio.run(play())
    assert host.asked.told == ["request", "close"]
