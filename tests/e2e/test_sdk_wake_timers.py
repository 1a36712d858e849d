"""Sandboxes that wake at a time that a program inside has left."""

from __future__ import annotations

import time
from pathlib import Path

from tests.waiting import until

from atoll import Lifecycle, Sandbox

FILE = "/run/atoll/wake-at"


def test_a_time_left_inside_wakes_it_once_after_any_sleep(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        left = sandbox.run(f"echo $(($(date +%s) + 12)) > {FILE}; cat {FILE}").check().stdout
        sandbox.suspend()
        info = sandbox.info()
        assert info.state == "suspended"
        assert info.wakes_at is not None
        assert info.wakes_at >= float(left)
        until(lambda: sandbox.info().state == "running")
        assert time.time() >= info.wakes_at
        assert sandbox.info().wakes_at is None
        assert sandbox.run(f"cat {FILE}").stdout == ""
        assert "the time has come" in "".join(sandbox.logs())
        # what is no time, or has passed, wakes nobody
        for text in ("tomorrow", "1000", "99999999999"):
            sandbox.run(f"echo {text} > {FILE}").check()
            sandbox.suspend()
            assert sandbox.info().wakes_at is None
        assert 'wake-at: "tomorrow" is no time' in "".join(sandbox.logs())


def test_it_waits_through_idleness_copies_and_a_sleep_without_memory(module_home: Path) -> None:
    boot_id = "cat /proc/sys/kernel/random/boot_id"
    with Sandbox.create(lifecycle=Lifecycle(idle_suspend_s=1)) as idle, Sandbox.create() as stopped:
        before = stopped.run(f"echo +10 > {FILE}; {boot_id}").check().stdout
        stopped.suspend(memory=False)
        assert stopped.info().wakes_at is not None
        idle.run(f"echo +12 > {FILE}").check()
        until(lambda: idle.info().state == "suspended")
        asleep = idle.info()
        assert asleep.wakes_at is not None
        with idle.fork(1)[0] as copy:  # which does not inherit it
            assert copy.info().wakes_at is None
            assert copy.run(f"cat {FILE}").stdout == ""
        until(lambda: idle.info().started_at > asleep.started_at)
        until(lambda: stopped.info().state == "running")
        assert stopped.run(boot_id).stdout != before
