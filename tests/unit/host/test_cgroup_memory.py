from __future__ import annotations

from pathlib import Path

import pytest

from atoll.host.resources.cgroup_memory import GroupMemory, groups_of, least
from atoll.host.resources.cgroups import CgroupMount

GIB = 1 << 30


def group(path: Path, **files: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return path


def test_a_process_is_in_its_own_group_and_in_all_above_it() -> None:
    unified = CgroupMount(Path("/cg"), "/", frozenset())
    assert groups_of([unified], "0::/user/one\n") == (Path("/cg/user/one"), Path("/cg/user"), Path("/cg"))
    memory = CgroupMount(Path("/cg/memory"), "/box/1", frozenset({"memory"}))
    others = CgroupMount(Path("/cg/cpu"), "/box/1", frozenset({"cpu"}))
    text = "3:cpu:/box/1\n2:memory,hugetlb:/box/1/a\n1:name=systemd:/box/1\n"
    assert groups_of([memory, others], text) == (Path("/cg/memory/a"), Path("/cg/memory"))
    assert groups_of([memory], text.replace("/box/1", "/elsewhere")) == (Path("/cg/memory"),)


@pytest.mark.parametrize("version", [1, 2])
def test_the_least_of_all_groups_counts_without_what_can_be_dropped(tmp_path: Path, version: int) -> None:
    limit, usage, dropped = (
        ("memory__max", "memory__current", "inactive_file")
        if version == 2
        else ("memory__limit_in_bytes", "memory__usage_in_bytes", "total_inactive_file")
    )
    none = "max" if version == 2 else str((1 << 63) - 4096)
    above = group(
        tmp_path / "a",
        **{limit: f"{4 * GIB}", usage: f"{3 * GIB}", "memory__stat": f"anon 1\n{dropped} {GIB}\n"},
    )
    own = group(tmp_path / "a/b", **{limit: f"{3 * GIB}\n", usage: "0", "memory__stat": ""})
    free = group(tmp_path / "c", **{limit: none, usage: "5", "memory__stat": ""})
    assert least([own, above, free, tmp_path]) == GroupMemory(3 * GIB, 2 * GIB)
    assert least([free, tmp_path]) is None
