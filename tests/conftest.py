"""Fixtures that real-host tests share. Each home ends with the host as it began."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from types import FrameType
from typing import TextIO, cast

import pytest

from atoll.host import Home, locked
from tests import homes
from tests.e2e.server import Server, serving

# Whoever runs the tests in the background has children that ignore Ctrl-C, which some tests press.
signal.signal(signal.SIGINT, signal.default_int_handler)
_PID = os.getpid()


def _ended(number: int, frame: FrameType | None) -> None:
    """End the run as Ctrl-C does, so that the homes that it has made end too. What tests have forked ends at once."""
    signal.signal(number, signal.SIG_DFL)
    if os.getpid() != _PID:
        os.kill(os.getpid(), number)
    signal.default_int_handler(number, frame)


signal.signal(signal.SIGTERM, _ended)


STDERR = pytest.StashKey[int]()
CLEAN_UP_S = 300.0
# Enough of why a test failed to know it again at the end of a long log.
WHY_CHARS = 300


def pytest_configure(config: pytest.Config) -> None:
    """Keep the way to the terminal, which is another while a test's output is caught."""
    config.stash[STDERR] = os.dup(2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """End it all, and tell where every thread stood, when cleaning up after a test hangs as well."""
    faulthandler.dump_traceback_later(CLEAN_UP_S, exit=True, file=item.config.stash[STDERR])
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure what the supervisor and the sandboxes of the test's home have logged."""
    report = yield
    path = getattr(item, "funcargs", {}).get("home") or getattr(item, "funcargs", {}).get("module_home")
    if report.failed and isinstance(path, Path):
        report.sections.append(("logs of the home", homes.logs_of(Home(path))))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how long it took, and tell of a failure at once: a run that is cut short has no summary."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    if "ATOLL_STAGES" in os.environ:
        note_duration(report)
    if report.failed:
        cast(TextIO, sys.__stderr__).write(
            f"\n{report.when} of {report.nodeid} failed:\n{report.longreprtext}\n"
        )
        cast(TextIO, sys.__stderr__).flush()


def note_duration(report: pytest.TestReport) -> None:
    """Add a line for scripts/budget.py, and one more for a failure.

    The file may belong to another user, for whom the kernel creates none.
    """
    stage = os.environ.get("ATOLL_STAGE", "")
    line = f"test\t{report.duration:.2f}\t{stage}\t{report.nodeid}\n"
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        why = " ".join((crash.message if crash is not None else report.longreprtext).split())
        line += f"failed\t0\t{stage}\t{report.when} of {report.nodeid}: {why[:WHY_CHARS]}\n"
    file = os.open(os.environ["ATOLL_STAGES"], os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


@pytest.fixture
def home() -> Iterator[Path]:
    """A home of the test's own, named by ``ATOLL_HOME``."""
    with homes.make_home() as path:
        yield path


@pytest.fixture(scope="module")
def module_home() -> Iterator[Path]:
    """A home that the tests of one file share, named by ``ATOLL_HOME``."""
    with homes.make_home() as path:
        yield path


@pytest.fixture(scope="module")
def e2b_port(module_home: Path) -> Iterator[int]:
    """A sandbox whose guest agent listens on ``localhost:49983``, where the E2B SDK looks in its debug mode."""
    from atoll import Sandbox

    with pytest.MonkeyPatch.context() as patch, locked(homes.CACHE / "e2b-port.lock"):
        patch.setenv("E2B_DEBUG", "true")
        patch.setenv("E2B_API_KEY", "e2b_" + "0" * 40)
        with Sandbox.create() as sandbox, sandbox.ports.forward(49983, local_port=49983) as forward:
            yield forward.port


@pytest.fixture(scope="module")
def server(module_home: Path) -> Iterator[Server]:
    """`atoll serve` over the module's home, on plain http."""
    del module_home
    with serving() as running:
        yield running
