"""The options for how long a sandbox runs and what wakes it."""

from __future__ import annotations

import click
from click.testing import CliRunner

from atoll.cli.leases import lease_shown, lifecycle, lifecycle_options
from atoll.types import Lifecycle, Limits, SandboxInfo


def test_the_options_make_a_lifecycle() -> None:
    made: list[Lifecycle] = []

    @click.command()
    @lifecycle_options
    def create(**options: object) -> None:
        made.append(lifecycle(options))

    options = ["--lease", "1h", "--on-lease-end", "suspend", "--idle-suspend", "1m", "--wake-on-data"]
    CliRunner().invoke(create, options, catch_exceptions=False)
    CliRunner().invoke(create, [], catch_exceptions=False)
    woken = Lifecycle(ttl_s=3600, on_expiry="suspend", idle_suspend_s=60, wake_on_data=True)
    assert made == [woken, Lifecycle()]


def test_what_wakes_it_is_shown() -> None:
    def info(how: Lifecycle) -> SandboxInfo:
        return SandboxInfo(
            sandbox_id="a" * 20,
            name=None,
            image="base",
            state="running",
            created_at=1.0,
            changed_at=1.0,
            env={},
            metadata={},
            network="none",
            limits=Limits(),
            user="user",
            cwd="/",
            lifecycle=how,
        )

    ways = (Lifecycle(), Lifecycle(wake_on_data=True), Lifecycle(auto_resume=False))
    shown = [lease_shown(info(how)) for how in ways]
    assert shown == ["none", "none; data wakes it too", "none; only `atoll resume` wakes it"]
