from __future__ import annotations

import asyncio
import subprocess
import time

import pytest

from atoll.host import Home, cgroup_root, check_host
from atoll.types import Limits

pytestmark = pytest.mark.twice


def test_this_host_is_fit_for_sandboxes(host_home: Home) -> None:
    checks = asyncio.run(check_host(host_home))
    assert [check for check in checks if check.level == "error"] == []
    names = {check.name for check in checks}
    assert {
        "kernel",
        "namespaces",
        "disk kind",
        "nftables",
        "disk space",
        "cgroups",
        "shaping",
        "clock",
    } <= names
    assert not list(host_home.path.glob(".trial-*"))


def test_a_group_holds_its_processes_and_takes_them_with_it(host_home: Home) -> None:
    root = cgroup_root(host_home)
    if root is None:  # this user may make none here; `doctor` says so
        return
    try:
        cgroup = root.make("one", Limits(memory_mib=256, vcpus=0.5, processes=10))
        assert root.names() == ["one"]
        with subprocess.Popen(["sleep", "1000"]) as process:
            cgroup.add(process.pid)
            assert cgroup.pids() == [process.pid]
            assert cgroup.memory_bytes() >= 0
            assert cgroup.cpu_s() >= 0
            cgroup.remove()
            assert process.wait(240) == -9
        assert root.find("one") is None
        cgroup.remove()
    finally:
        root.remove()


def test_a_frozen_group_stands_still_and_is_killed_all_the_same(host_home: Home) -> None:
    root = cgroup_root(host_home)
    if root is None:
        return
    try:
        cgroup = root.make("cold", Limits())
        with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as process:
            cgroup.add(process.pid)
            assert not cgroup.is_frozen()
            assert cgroup.freeze()
            assert cgroup.is_frozen()
            used_s = cgroup.cpu_s()
            time.sleep(0.2)
            assert cgroup.cpu_s() - used_s < 0.01
            cgroup.thaw()
            assert not cgroup.is_frozen()
            while cgroup.cpu_s() - used_s < 0.02:
                time.sleep(0.01)
            cgroup.freeze()
            cgroup.kill()
            assert process.wait(240) == -9
        cgroup.remove()
        assert not cgroup.is_frozen()
    finally:
        root.remove()


def test_a_process_enters_a_group_by_itself(host_home: Home) -> None:
    root = cgroup_root(host_home)
    if root is None:
        return
    try:
        cgroup = root.make("own", Limits())
        entering = "".join(f"echo 0 > {path} && " for path in cgroup.entry_files())
        with subprocess.Popen(
            ["sh", "-c", f"{entering} echo in && read line"], stdin=-1, stdout=-1
        ) as process:
            assert process.stdout and process.stdout.readline() == b"in\n"
            assert cgroup.pids() == [process.pid]
            process.communicate(b"\n")
        cgroup.remove()
    finally:
        root.remove()
