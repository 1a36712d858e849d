from __future__ import annotations

from pathlib import Path, PurePosixPath
from unittest.mock import patch

import pytest

from atoll.errors import HostError
from atoll.host.resources.cgroups import CgroupRoot, _candidates, cgroup_mounts
from atoll.types import Limits


@pytest.fixture
def unified(tmp_path: Path) -> CgroupRoot:
    """A root in a tree of files that looks like version 2."""
    directory = tmp_path / "atoll" / "home"
    directory.mkdir(parents=True)
    for above in (directory, directory.parent):
        (above / "cgroup.subtree_control").write_text("cpu memory pids\n")
    return CgroupRoot(dict.fromkeys(("memory", "cpu", "pids"), directory), unified=True)


def test_limits_are_written_as_version_2_reads_them(unified: CgroupRoot, tmp_path: Path) -> None:
    unified.make("one", Limits(memory_mib=1024, vcpus=1.5, processes=100))
    made = tmp_path / "atoll" / "home" / "one"
    assert (made / "memory.max").read_text() == str(1 << 30)
    assert (made / "cpu.max").read_text() == "30000 20000"
    assert int((made / "pids.max").read_text()) > 100
    assert unified.names() == ["one"]
    assert unified.find("two") is None


def test_what_has_no_limit_is_not_written(unified: CgroupRoot, tmp_path: Path) -> None:
    unified.make("one", Limits())
    assert list((tmp_path / "atoll" / "home" / "one").iterdir()) == []


def test_memory_and_time_are_read_from_version_2(unified: CgroupRoot, tmp_path: Path) -> None:
    cgroup = unified.make("one", Limits())
    made = tmp_path / "atoll" / "home" / "one"
    (made / "memory.current").write_text("1000\n")
    (made / "memory.stat").write_text("anon 500\ninactive_file 300\n")
    (made / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (made / "cgroup.procs").write_text("12\n34\n")
    assert (cgroup.memory_bytes(), cgroup.cpu_s(), cgroup.pids()) == (700, 2.5, [12, 34])
    assert cgroup.entry_files() == [made / "cgroup.procs"]


def test_a_group_is_killed_as_a_whole_with_all_the_processor_time_there_is(
    unified: CgroupRoot, tmp_path: Path
) -> None:
    cgroup = unified.make("one", Limits(vcpus=0.5))
    cgroup.kill()
    made = tmp_path / "atoll" / "home" / "one"
    assert (made / "cpu.max").read_text() == "max"
    assert (made / "cgroup.kill").read_text() == "1"


def test_all_sandboxes_together_weigh_less_than_a_program_of_the_host(tmp_path: Path) -> None:
    above = tmp_path / "cpu" / "atoll"
    above.mkdir(parents=True)
    (above / "cpu.shares").write_text("1024")
    hierarchies = {name: tmp_path / name / "atoll" / "home" for name in ("memory", "cpu", "cpuacct", "pids")}
    CgroupRoot(hierarchies, unified=False).make("one", Limits())
    assert int((above / "cpu.shares").read_text()) < 1024


def test_what_all_sandboxes_use_together_has_a_limit_also_when_the_group_is_made_again(
    unified: CgroupRoot, tmp_path: Path
) -> None:
    limit = tmp_path / "atoll" / "home" / "memory.max"
    unified.limit_memory(5 << 30)
    assert limit.read_text() == str(5 << 30)
    limit.unlink()
    unified.make("one", Limits())
    assert limit.read_text() == str(5 << 30)


def test_a_group_whose_removal_was_cut_short_is_found_again(tmp_path: Path) -> None:
    hierarchies = {name: tmp_path / name for name in ("memory", "cpu", "cpuacct", "pids")}
    root = CgroupRoot(hierarchies, unified=False)
    for cut_after in range(4):
        cgroup = root.make("one", Limits())
        removed = [*[True] * cut_after, KeyboardInterrupt]

        def cut(directory: Path, removed: list[object] = removed) -> bool:
            if removed.pop(0) is KeyboardInterrupt:
                raise KeyboardInterrupt
            directory.rmdir()
            return True

        with patch("atoll.host.resources.cgroups._removed", cut), pytest.raises(KeyboardInterrupt):
            cgroup.remove()
        assert root.names() == ["one"]
        found = root.find("one")
        assert found is not None
        found.remove()
        assert [path for path in hierarchies.values() if list(path.iterdir())] == []


def test_a_group_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    root = CgroupRoot(dict.fromkeys(("memory", "cpu", "pids"), tmp_path / "file" / "x"), unified=True)
    with pytest.raises(HostError, match="one"):
        root.make("one", Limits())


def test_the_topmost_group_that_we_may_use_comes_first(tmp_path: Path) -> None:
    own = PurePosixPath("user.slice/user@1000.service/app.slice/terminal.scope")
    for group in own.parents[:2]:
        (tmp_path / group).mkdir(parents=True, exist_ok=True)
        (tmp_path / group / "cgroup.procs").touch()
    assert _candidates(tmp_path, own) == [
        tmp_path / "user.slice/user@1000.service",
        tmp_path / "user.slice/user@1000.service/app.slice",
    ]


def test_hierarchies_are_found_in_the_table_of_mounts() -> None:
    mountinfo = (
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
        "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    )
    found = cgroup_mounts(mountinfo)
    assert [(str(mount.point), set(mount.controllers)) for mount in found] == [
        ("/sys/fs/cgroup/cpu,cpuacct", {"cpu", "cpuacct"}),
        ("/sys/fs/cgroup/unified", set()),
    ]
