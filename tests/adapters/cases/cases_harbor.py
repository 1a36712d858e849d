"""Trials of Harbor in sandboxes, with its agents that need no model."""

from __future__ import annotations

from pathlib import Path

import pytest
from harbor.environments.factory import EnvironmentFactory
from harbor.models.task.config import EnvironmentConfig as Wanted
from harbor.models.task.config import NetworkPolicy
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.models.trial.paths import TrialPaths
from harbor.models.trial.result import TrialResult
from harbor.trial.trial import Trial

from atoll import AsyncSandbox
from atoll.adapters.harbor import AtollEnvironment

pytestmark = pytest.mark.anyio
IMPORT_PATH = "atoll.adapters.harbor:AtollEnvironment"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task whose solution greets in a file, and whose test looks for it."""
    files = {
        "task.toml": "[environment]\ncpus = 1\nmemory_mb = 512\nstorage_mb = 1024\n",
        "instruction.md": "Write hello into greeting.txt.\n",
        "environment/Dockerfile": "FROM base\nUSER root\nWORKDIR /app\nCOPY given .\n",
        "environment/given": "hello",
        "solution/solve.sh": "#!/bin/bash\ncp given greeting.txt\n",
        "tests/test.sh": (
            "#!/bin/bash\n"
            'if [ "$(cat /app/greeting.txt)" = hello ]; then reward=1; else reward=0; fi\n'
            "echo $reward > /logs/verifier/reward.txt\n"
        ),
    }
    for name, content in files.items():
        path = tmp_path / "greet" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(0o755)
    return tmp_path / "greet"


async def tried(task: Path, agent: str) -> TrialResult:
    config = TrialConfig(
        task=TaskConfig(path=task),
        trials_dir=task.parent / "trials",
        agent=AgentConfig(name=agent),
        environment=EnvironmentConfig(import_path=IMPORT_PATH),
    )
    return await (await Trial.create(config)).run()


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1), ("nop", 0)])
async def test_a_trial_is_rewarded_for_what_its_agent_did(task: Path, agent: str, reward: int) -> None:
    result = await tried(task, agent)
    assert result.exception_info is None
    assert result.verifier_result is not None
    assert result.verifier_result.rewards == {"reward": reward}
    assert [info async for info in AsyncSandbox.list(metadata={"made_for": "harbor"})] == []


@pytest.fixture
def environment(task: Path, tmp_path: Path) -> AtollEnvironment:
    made = EnvironmentFactory.get_environment_class(import_path=IMPORT_PATH)(
        environment_dir=task / "environment",
        environment_name="greet",
        session_id="greet__1__env",
        trial_paths=TrialPaths(tmp_path / "trial"),
        task_env_config=Wanted(env={"GIVEN": "yes"}, docker_image="base"),
        network_policy=NetworkPolicy(network_mode="no-network"),
    )
    assert isinstance(made, AtollEnvironment)
    return made


async def test_commands_and_files_are_the_sandboxs(environment: AtollEnvironment, tmp_path: Path) -> None:
    await environment.start(force_build=False)
    said: list[tuple[str, str]] = []

    async def listen(text: str, stream: str) -> None:
        said.append((stream, text))

    with environment.scoped_output_callback(listen):
        result = await environment.exec("echo $GIVEN; pwd; id -u; exit 3", cwd="/var", user=0)
    assert (result.stdout, result.return_code) == ("yes\n/var\n0\n", 3)
    assert {stream for stream, _ in said} == {"stdout"}
    with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
        await environment.exec("sleep 60", timeout_sec=1)
    (tmp_path / "up/sub").mkdir(parents=True)
    (tmp_path / "up/sub/run.sh").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "up/sub/run.sh").chmod(0o755)
    await environment.upload_dir(tmp_path / "up", "/srv/made/here")
    assert (
        await environment.exec("/srv/made/here/sub/run.sh && ln -s / /srv/made/here/root")
    ).stdout == "ran\n"
    await environment.download_dir("/srv/made/here", tmp_path / "down/deep")
    assert [path.name for path in sorted((tmp_path / "down/deep").rglob("*"))] == ["sub", "run.sh"]
    await environment.upload_file(tmp_path / "up/sub/run.sh", "/srv/other/place/run.sh")
    await environment.download_file("/srv/other/place/run.sh", tmp_path / "one/run.sh")
    assert (tmp_path / "one/run.sh").read_text() == "#!/bin/sh\necho ran\n"
    await environment.stop(delete=True)


async def test_the_network_changes_while_the_trial_runs(environment: AtollEnvironment) -> None:
    await environment.start(force_build=False)
    assert (await environment.sandbox.info()).network == "none"
    hosts = ["example.com", "*.example.org", "192.0.2.0/24"]
    await environment.set_network_policy(NetworkPolicy(network_mode="allowlist", allowed_hosts=hosts))
    for host, action in (("a.example.net", "deny"), ("192.0.2.7", "allow"), ("198.51.100.1", "deny")):
        verdict = await environment.sandbox.egress.test("GET", f"https://{host}/")
        assert (host, verdict.action) == (host, action)
    known = await environment.sandbox.egress.test("GET", "https://a.example.org/")
    assert "no rule" not in known.reason  # though it may lead nowhere
    await environment.stop(delete=True)


async def test_an_environment_that_is_kept_sleeps(environment: AtollEnvironment) -> None:
    await environment.start(force_build=False)
    sandbox = environment.sandbox
    await environment.stop(delete=False)
    assert (await AsyncSandbox.get(sandbox.id)).state == "suspended"
    await sandbox.kill()


async def test_a_task_with_a_compose_file_is_refused(task: Path) -> None:
    (task / "environment/docker-compose.yaml").write_text("services: {}\n")
    with pytest.raises(ValueError, match="docker-compose.yaml"):
        await tried(task, "nop")
