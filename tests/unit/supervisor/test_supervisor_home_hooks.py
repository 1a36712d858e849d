"""Programs of the home's user run around the sleep of a sandbox, in order, in bounded time, and stop nothing."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any
from unittest.mock import patch

from atoll.supervisor.lifecycle.home_hooks import HomeHooks
from atoll.supervisor.state.tasks import Tasks
from tests.unit.supervisor.harness import Harness, with_harness


def put(harness: Harness, event: str, name: str, script: str, mode: int = 0o755) -> None:
    path = harness.system.paths.hooks / f"{event}.d" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(mode)


def writing(harness: Harness, event: str, log: Path) -> None:
    put(harness, event, "50-tell", f"cat >> {log}")


def told(log: Path) -> list[dict[str, Any]]:
    """What each call of a hook that writes has read."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def is_alive(pid_file: Path) -> bool:
    return Path("/proc", pid_file.read_text().strip()).exists()


@with_harness
async def test_they_hear_what_happens_in_its_order(harness: Harness) -> None:
    log = harness.system.home.path / "hooks.log"
    for event in ("before-suspend", "after-wake"):
        writing(harness, event, log)
    put(harness, "after-wake", "10-slow", "sleep 0.3")
    made = await harness.create(name="work", metadata={"user": "ann"})
    sandbox = harness.system.inventory.sandbox("work")
    assert told(log) == []
    await harness.asleep(made)
    await harness.system.wakes.use(sandbox)
    await harness.asleep(made)
    await harness.asleep(made)  # it sleeps already
    heard = [(one["event"], one["why"]) for one in told(log)]
    sleeps, wakes = ("before-suspend", "request"), ("after-wake", "suspended")
    assert heard == [sleeps, wakes, sleeps]
    assert told(log)[0] == {
        "event": "before-suspend",
        "why": "request",
        "sandbox_id": sandbox.sandbox_id,
        "name": "work",
        "team": None,
        "metadata": {"user": "ann"},
    }


@with_harness
async def test_neither_a_pause_nor_a_thaw_is_told(harness: Harness) -> None:
    log = harness.system.home.path / "hooks.log"
    writing(harness, "after-wake", log)
    writing(harness, "before-suspend", log)
    made = await harness.create()
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    await harness.system.pauses.pause(sandbox)
    await harness.system.wakes.use(sandbox)
    assert told(log) == []


@with_harness
async def test_what_fails_stops_neither_the_next_one_nor_the_suspend(harness: Harness) -> None:
    log = harness.system.home.path / "hooks.log"
    put(harness, "before-suspend", "10-fails", "echo it is broken >&2; exit 3")
    put(harness, "before-suspend", "20-no-interpreter", "")
    path = harness.system.paths.hooks / "before-suspend.d/20-no-interpreter"
    path.write_text("#!/no/such/program\n")
    put(harness, "before-suspend", "30-no-program", f"echo never > {log}", 0o644)
    put(harness, "before-suspend", ".hidden", f"echo never > {log}")
    (path.parent / "40-directory").mkdir()
    writing(harness, "before-suspend", log)
    made = await harness.create()
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("atoll.supervisor.lifecycle.home_hooks")
    logger.addHandler(handler)
    try:
        await harness.asleep(made)
    finally:
        logger.removeHandler(handler)
    assert len(told(log)) == 1
    assert len(lines) == 2
    assert "10-fails ended with 3" in lines[0]
    assert "it is broken" in lines[0]
    assert "20-no-interpreter" in lines[1]
    assert harness.system.inventory.sandbox(made["sandbox_id"]).row.state == "suspended"


@with_harness
async def test_all_of_them_have_a_bound_together(harness: Harness) -> None:
    log = harness.system.home.path / "hooks.log"
    put(harness, "before-suspend", "10-hangs", f"echo $$ > {log}.pid; sleep 600")
    writing(harness, "before-suspend", log)
    made = await harness.create()
    row = harness.system.inventory.sandbox(made["sandbox_id"]).row
    hooks = HomeHooks(harness.system.paths.hooks, Tasks(), bound_s=3)
    await hooks.before_suspend(row, "idle")
    assert told(log) == []
    assert not is_alive(Path(f"{log}.pid"))
    (harness.system.paths.hooks / "before-suspend.d/10-hangs").unlink()
    await hooks.before_suspend(row, "idle")
    assert told(log) == []  # all sandboxes of a home may be about to be suspended


@with_harness
async def test_wakes_that_follow_each_other_are_heard_in_their_order(harness: Harness) -> None:
    log = harness.system.home.path / "hooks.log"
    put(harness, "after-wake", "10-slow", "sleep 0.2")
    writing(harness, "after-wake", log)
    writing(harness, "before-suspend", log)
    row = harness.system.inventory.sandbox((await harness.create())["sandbox_id"]).row
    hooks = HomeHooks(harness.system.paths.hooks, Tasks())
    hooks.after_wake(row, "suspended")
    hooks.after_wake(row, "crashed")
    await asyncio.sleep(0.3)  # the first is over
    await hooks.before_suspend(row, "idle")
    assert [one["why"] for one in told(log)] == ["suspended", "crashed", "idle"]


@with_harness
async def test_a_lack_of_descriptors_stops_no_suspend(harness: Harness) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise OSError(24, "too many open files")

    put(harness, "before-suspend", "50-any", "true")
    made = await harness.create()
    with patch("atoll.supervisor.lifecycle.home_hooks.run_program", fails):
        await harness.asleep(made)
    assert harness.system.inventory.sandbox(made["sandbox_id"]).row.state == "suspended"
