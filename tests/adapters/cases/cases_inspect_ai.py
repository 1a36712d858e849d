"""Inspect's own checks of a sandbox provider, and what they leave out."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from inspect_ai.util import SandboxEnvironment, SandboxUnavailableError
from inspect_ai.util._sandbox.limits import override_max_exec_output_size
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from atoll import AsyncSnapshots
from atoll.adapters.inspect_ai import AtollSandboxConfig, AtollSandboxEnvironment

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def made() -> AsyncIterator[SandboxEnvironment]:
    provider = registry_find_sandboxenv("atoll")
    await provider.task_init("checks", None)
    environments = await provider.sample_init("checks", None, {})
    yield environments["default"]
    await provider.sample_cleanup("checks", None, environments, False)
    await provider.task_cleanup("checks", None, True)


@pytest.fixture
def sandbox_env(made: SandboxEnvironment) -> SandboxEnvironment:
    return made


async def test_output_is_cut_to_its_last_part(sandbox_env: SandboxEnvironment) -> None:
    with override_max_exec_output_size(1000):
        result = await sandbox_env.exec(["sh", "-c", "seq 100000"])
    assert len(result.stdout) == 1000
    assert result.stdout.endswith("\n100000\n")


async def test_what_is_not_there_is_a_result_of_the_command(sandbox_env: SandboxEnvironment) -> None:
    missing = await sandbox_env.exec(["no-such-program"])
    assert (missing.success, missing.returncode) == (False, 127)
    assert "no-such-program" in missing.stderr
    assert not (await sandbox_env.exec(["true"], cwd="/no/such/directory")).success


async def test_a_user_may_be_given_by_number(sandbox_env: SandboxEnvironment) -> None:
    assert (await sandbox_env.exec(["id", "-u"], user="0")).stdout == "0\n"


async def test_what_a_command_wrote_is_told_with_its_timeout(sandbox_env: SandboxEnvironment) -> None:
    with pytest.raises(TimeoutError) as caught:
        await sandbox_env.exec(["sh", "-c", "echo so far; sleep 60"], timeout=5)
    assert caught.value.truncated_output == "so far\n"


async def test_a_sandbox_that_is_gone_is_unavailable_and_has_no_connection() -> None:
    provider = AtollSandboxEnvironment
    (environment,) = (await provider.sample_init("checks", None, {})).values()
    gone = environment.as_type(provider)
    connection = await gone.connection(user="root")
    assert connection.command.endswith(f"atoll shell --user root --cwd {gone._cwd} {gone.sandbox.id}")
    await gone.sandbox.kill()
    with pytest.raises(SandboxUnavailableError):
        await gone.exec(["true"])
    with pytest.raises(SandboxUnavailableError):
        await gone.read_file("x")
    with pytest.raises(ConnectionError):
        await gone.connection()


async def test_the_clean_up_from_the_command_line_ends_what_evaluations_left() -> None:
    config = AtollSandboxConfig(setup="true")
    await AtollSandboxEnvironment.task_init("left", config)
    left = await AtollSandboxEnvironment.sample_init("left", config, {})
    await AtollSandboxEnvironment.task_cleanup("left", config, False)
    (other,) = (await AtollSandboxEnvironment.sample_init("left", None, {})).values()
    await AtollSandboxEnvironment.cli_cleanup(other.as_type(AtollSandboxEnvironment).sandbox.id)
    assert (await left["default"].exec(["true"])).success
    with pytest.raises(SandboxUnavailableError):
        await other.exec(["true"])
    await left["default"].as_type(AtollSandboxEnvironment).sandbox.kill()
    # a sandbox of a snapshot must be gone before the snapshot; the shared one of this file must stay
    for snapshot in await AsyncSnapshots.list():
        await AsyncSnapshots.delete(snapshot.snapshot_id)
