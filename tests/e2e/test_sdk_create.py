"""The ways to a sandbox, with a real one behind them."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.e2e.command_line import atoll

from atoll import Hosting, Sandbox, Wait
from atoll.errors import DeadlineError, InvalidSpecError

pytestmark = pytest.mark.twice

CALLERS = 6


def names() -> list[str | None]:
    return [info.name for info in Sandbox.list()]


def test_callers_who_want_the_same_name_at_once_get_one_sandbox(module_home: Path) -> None:
    def opened(_: int) -> str:
        with Sandbox.connect_or_create(name="shared", env={"MODE": "test"}) as sandbox:
            return sandbox.id

    with ThreadPoolExecutor(CALLERS) as pool:
        ids = set(pool.map(opened, range(CALLERS)))
    assert len(ids) == 1
    assert names().count("shared") == 1


def test_a_sandbox_that_sleeps_is_woken_where_it_was(module_home: Path) -> None:
    with Sandbox.connect_or_create(name="sleeper", ttl_s=3600) as sandbox:
        sandbox.run("echo 42 > /tmp/answer")
        sandbox.suspend()
    with Sandbox.connect_or_create(name="sleeper") as sandbox:
        assert sandbox.run("cat /tmp/answer").stdout == "42\n"
        assert sandbox.info().ends_at is not None
        sandbox.kill()


def test_a_registry_that_says_nothing_ends_a_create_in_time_and_leaves_nothing(module_home: Path) -> None:
    before = names()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        image = f"127.0.0.1:{silent.getsockname()[1]}/tool:1"
        with pytest.raises(DeadlineError, match="not ready within 1 s"):
            Sandbox.create(image, name="never", wait=Wait(within_s=1))
        refused = atoll("create", "--image", image, "--name", "never", "--within", "1s")
    assert (refused.returncode, b"give a longer --within" in refused.stderr) == (125, True), refused.stderr
    assert names() == before


def test_a_repeated_request_gets_the_sandbox_of_the_first(module_home: Path) -> None:
    def made(_: int) -> str:
        with Sandbox.create(
            hosting=Hosting(idempotency_key="job-42"), env={"MODE": "test"}, keep=True
        ) as sandbox:
            return sandbox.id

    with ThreadPoolExecutor(CALLERS) as pool:
        (only,) = set(pool.map(made, range(CALLERS)))
    with pytest.raises(InvalidSpecError, match="another request"):
        Sandbox.create(hosting=Hosting(idempotency_key="job-42"))
    with Sandbox.connect(only) as sandbox:
        assert sandbox.run("echo $MODE").stdout == "test\n"
        sandbox.kill()
    with Sandbox.create(hosting=Hosting(idempotency_key="job-42")) as other:
        assert other.id != only
