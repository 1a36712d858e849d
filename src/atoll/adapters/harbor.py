"""Sandboxes for Harbor: ``harbor run --env atoll.adapters.harbor:AtollEnvironment``."""

from __future__ import annotations

import contextlib
import ipaddress
from pathlib import Path
from typing import Any

import anyio
from harbor.environments.base import BaseEnvironment, ExecResult, OutputCallback
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.definition import (
    COMPOSE_FILE_NAME,
    DOCKERFILE_NAME,
    require_agent_environment_definition,
    should_use_prebuilt_docker_image,
)
from harbor.environments.options import EnvironmentOptions
from harbor.models.task.config import NetworkMode, NetworkPolicy

from atoll import AsyncSandbox, Boot, Limits, Policy, Rule, Template, Wait
from atoll.adapters.dockerfiles import build, template_name
from atoll.errors import ExecTimeoutError, SandboxNotFoundError
from atoll.types import EgressPolicy

__all__ = ["AtollEnvironment"]

_END_S = 60.0
# Harbor's own files are root's, whoever the image's user is.
_ROOT = "root"


class AtollEnvironment(BaseEnvironment):
    """The environment of a trial, as one sandbox.

    A task's Dockerfile is built once, as a template. Each trial starts from its snapshot.
    """

    options_model = EnvironmentOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._sandbox: AsyncSandbox | None = None
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        """Return the name of this kind of environment."""
        return "atoll"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """What Harbor may ask of it: any network policy without IPv6, also while a trial runs."""
        return EnvironmentCapabilities(
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_wildcard_hostnames=True,
            network_allowlist_ipv4_addresses=True,
            network_allowlist_ipv4_cidrs=True,
            dynamic_network_policy=True,
        )

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """Return that processors and memory are hard limits."""
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    @property
    def sandbox(self) -> AsyncSandbox:
        """The sandbox.

        Raises:
            RuntimeError: It was not started, or was stopped.
        """
        if self._sandbox is None:
            raise RuntimeError("the environment is not started")
        return self._sandbox

    def _validate_definition(self) -> None:
        if (self.environment_dir / COMPOSE_FILE_NAME).exists():
            raise ValueError(f"atoll runs one container, and the task has a {COMPOSE_FILE_NAME}")
        require_agent_environment_definition(
            self.environment_dir, docker_image=self.task_env_config.docker_image
        )

    async def start(self, force_build: bool) -> None:
        """Make the sandbox. The first trial of a task also pulls its image or builds its Dockerfile."""
        image = self.task_env_config.docker_image
        source: str | Template | None = image
        if not should_use_prebuilt_docker_image(
            self.environment_dir, docker_image=image, force_build=force_build
        ):
            dockerfile = self.environment_dir / DOCKERFILE_NAME
            await build(dockerfile, force=force_build)
            source = Template(template_name(dockerfile))
        self._sandbox = await AsyncSandbox.create(
            source,
            metadata={"made_for": "harbor", "session": self.session_id},
            network=_egress(self.network_policy),
            limits=Limits(
                vcpus=self._effective_cpus,
                memory_mib=self._effective_memory_mb,
                disk_mib=self._effective_storage_mb,
            ),
            boot=Boot(on_crash="stop"),
            keep=True,
            wait=Wait(on_progress=False),
        )
        try:
            made = await self.ensure_dirs(self._mount_targets(writable_only=True))
            if made is not None and made.return_code != 0:
                raise RuntimeError(f"cannot make the directories for logs: {made.stderr}")
            await self._upload_environment_dir_after_start()
        except BaseException:
            await self.stop(delete=True)
            raise

    async def stop(self, delete: bool) -> None:
        """Kill the sandbox, or put it to sleep where it stands, for ``atoll shell`` to look at."""
        if self._sandbox is None:
            return
        sandbox, self._sandbox = self._sandbox, None
        with anyio.move_on_after(_END_S, shield=True), contextlib.suppress(SandboxNotFoundError):
            if delete:
                await sandbox.kill()
            else:
                await sandbox.suspend()
                self.logger.info(f"sandbox {sandbox.id} sleeps: `atoll shell {sandbox.id}` wakes it")

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command of bash and wait for it. Of each stream, the last 10 MiB are returned.

        Raises:
            RuntimeError: ``timeout_sec`` has passed, and the command and its group were killed.
        """
        user = self._resolve_user(user)
        tell = self._output_callback()
        try:
            result = await self.sandbox.exec(
                ["bash", "-c", command],
                cwd=cwd or self.task_env_config.workdir,
                env=self._merge_env(env),
                user=None if user is None else str(user),
                timeout_s=timeout_sec,
                on_stdout=tell and _teller(tell, "stdout"),
                on_stderr=tell and _teller(tell, "stderr"),
            )
        except ExecTimeoutError as error:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from error
        return ExecResult(stdout=result.stdout, stderr=result.stderr, return_code=result.exit_code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file into the sandbox, with its permission bits."""
        await self.sandbox.files.upload(source_path, target_path, user=_ROOT)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy a directory's content into the sandbox."""
        await self.sandbox.files.upload(source_dir, target_dir, user=_ROOT)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file from the sandbox."""
        await anyio.Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        await self.sandbox.files.download(source_path, target_path, user=_ROOT)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy a directory's content from the sandbox, without links that lead out of it."""
        await anyio.Path(target_dir).mkdir(parents=True, exist_ok=True)
        await self.sandbox.files.download(source_dir, target_dir, outside_links=False, user=_ROOT)

    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        await self.sandbox.set_network(_egress(network_policy))


def _teller(tell: OutputCallback, stream: str) -> Any:
    return lambda text: tell(text, stream)


def _egress(policy: NetworkPolicy) -> EgressPolicy:
    """Return a network policy of Harbor in atoll's words."""
    if policy.network_mode == NetworkMode.PUBLIC:
        return "internet"
    if policy.network_mode == NetworkMode.NO_NETWORK:
        return "none"
    addresses = tuple(host for host in policy.allowed_hosts if _is_range(host))
    hosts = tuple(host for host in policy.allowed_hosts if host not in addresses)
    rules = [Rule(hosts=hosts)] if hosts else []
    return Policy(rules=(*rules, *([Rule(addresses=addresses)] if addresses else [])))


def _is_range(host: str) -> bool:
    try:
        ipaddress.ip_network(host)
    except ValueError:
        return False
    return True
