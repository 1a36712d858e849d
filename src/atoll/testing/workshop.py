"""The interface that the tests of an engine provide, and shared parts of the conformance tests."""

# ruff: noqa: D102  (the names of the tests say it)

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import pytest

from atoll.engines import (
    Engine,
    Machine,
    MachinePlan,
    can,
)
from atoll.testing.ledger import Ledger

PATIENCE_S = 120.0
# how long a frozen guest is watched
STILL_S = 0.3
FILE_BYTES = 64 << 10


class Tick(NamedTuple):
    """A line that the guest wrote: its host name at that time, and how many lines it had written before."""

    hostname: str
    number: int


class Workshop(Protocol):
    """The interface that the tests of an engine provide.

    The guest of a plan has a process 1 that never ends. Several times a second it appends a line with its
    host name and a number to a file on its disk. The number is kept in memory and counts up by one.
    """

    def engine(self) -> Engine:
        """Return a new engine object for this host."""

    def plan(self, machine_id: str, *, like: MachinePlan | None = None) -> MachinePlan:
        """Return a plan that boots that guest as ``machine_id``, in its own network namespace and directory.

        Its disk is new. With ``like`` it is a copy of that plan's current disk, at another path.
        """

    def filling_disk(self, plan: MachinePlan) -> MachinePlan:
        """Return the plan with another guest: before each line it writes a new file of ``FILE_BYTES``.

        When the disk refuses the file or the line, it writes no line and tries again.
        """

    def filling_memory(self, plan: MachinePlan, size_bytes: int) -> MachinePlan:
        """Return the plan with another guest: before its first line it takes that much memory, and keeps it."""

    def directory(self) -> Path:
        """Return a new empty directory."""

    def ticks(self, plan: MachinePlan) -> list[Tick]:
        """Return the guest's lines so far on the disk of ``plan``."""

    def ledger(self) -> Ledger:
        """Return the current resources of this workshop's machines on the host."""

    def run(self, test: Callable[[], Awaitable[None]]) -> None:
        """Run the test in an event loop in which engines of this kind can work."""


async def ticks_beyond(workshop: Workshop, plan: MachinePlan, number: int) -> Tick:
    """Wait until the guest has counted beyond ``number``, and return its newest line.

    Raises:
        TimeoutError: It did not within ``PATIENCE_S``.
    """
    async with asyncio.timeout(PATIENCE_S):
        while True:
            ticks = workshop.ticks(plan)
            if ticks and ticks[-1].number > number:
                return ticks[-1]
            await asyncio.sleep(0.01)


def claimed(workshop: Workshop, capability: type) -> None:
    """Skip the test of a capability that the engine does not claim."""
    if not can(type(workshop.engine()), capability):
        pytest.skip(f"the engine does not claim {capability.__name__}")


async def booted(workshop: Workshop) -> tuple[MachinePlan, Machine]:
    """Boot a guest and wait until it counts."""
    plan = workshop.plan("m1")
    machine = await workshop.engine().start(plan)
    await ticks_beyond(workshop, plan, 2)
    return plan, machine


def restoring(workshop: Workshop, machine_id: str, like: MachinePlan, checkpoint: Path) -> MachinePlan:
    """A plan that restores a guest under another name, with a copy of its disk."""
    return msgspec.structs.replace(workshop.plan(machine_id, like=like), checkpoint=checkpoint)


async def assert_frozen(workshop: Workshop, plan: MachinePlan) -> None:
    """Check that the guest stands still. A running guest would write several lines in that time."""
    before = workshop.ticks(plan)
    until_s = time.monotonic() + STILL_S
    while time.monotonic() < until_s:
        assert workshop.ticks(plan) == before
        await asyncio.sleep(0.02)


def counts_without_a_gap(ticks: list[Tick]) -> bool:
    """Whether the guest has lost nothing and done nothing twice."""
    return [tick.number for tick in ticks] == list(range(len(ticks)))
