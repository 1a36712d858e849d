"""What helps when a disk inside a sandbox is full."""

from __future__ import annotations

from atoll.remedies import in_words_of
from atoll.sdk._space import space_hint
from atoll.types import NO_LIMIT, Limits, SandboxInfo


def info(limits: Limits) -> SandboxInfo:
    return SandboxInfo(
        sandbox_id="a" * 20,
        name="work",
        image="base",
        state="running",
        created_at=1.0,
        changed_at=1.0,
        env={},
        metadata={},
        network="none",
        limits=Limits(),
        limits_in_force=limits,
        user="user",
        cwd="/",
    )


def test_a_full_disk_names_the_limit_and_what_raises_it() -> None:
    hint = space_hint(info(Limits(disk_mib=50)))
    assert hint.startswith("the limit of its disk is 50 MiB: remove files inside, or raise it with ")
    assert "`atoll limits work --disk SIZE`" in in_words_of("cli", hint)
    assert "`sandbox.set_limits(Limits(disk_mib=…))`" in in_words_of("sdk", hint)


def test_a_limit_of_files_is_named_too() -> None:
    hint = space_hint(info(Limits(disk_mib=50, files=1000)))
    assert "50 MiB and 1,000 files" in hint
    assert "`atoll limits work --files N`" in hint


def test_without_a_limit_the_hosts_disk_is_what_is_full() -> None:
    assert space_hint(info(Limits(disk_mib=NO_LIMIT))) == "remove files inside, or free disk under the home"
