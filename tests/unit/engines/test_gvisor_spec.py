"""What the guest is given to live in."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from atoll.engines import Bind, DiskGrowth, MachinePlan
from atoll.engines.gvisor.spec import bundle_spec
from atoll.types import Limits

PLAN = MachinePlan(
    machine_id="m1",
    state_dir=Path("/state"),
    rootfs=Path("/root-of-m1"),
    netns=Path("/pins/m1"),
    argv=("/init", "--flag"),
    env=("A=1",),
    hostname="coral",
    binds=(Bind(source="/agent", target="/opt/agent"),),
    limits=Limits(memory_mib=1024),
)


def test_process_1_is_root_with_every_capability_and_many_files() -> None:
    process = bundle_spec(PLAN)["process"]
    assert process["args"] == ["/init", "--flag"]
    assert process["env"] == ["A=1"]
    assert process["user"] == {"uid": 0, "gid": 0}
    assert {"CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_SETUID", "CAP_MKNOD"} <= set(
        process["capabilities"]["effective"]
    )
    assert next(limit for limit in process["rlimits"] if limit["type"] == "RLIMIT_NOFILE")["soft"] >= 65536


def test_a_bind_is_read_only_and_the_root_is_not() -> None:
    spec = bundle_spec(PLAN)
    assert spec["root"] == {"path": "/root-of-m1", "readonly": False}
    bind = next(mount for mount in spec["mounts"] if mount["destination"] == "/opt/agent")
    assert bind["source"] == "/agent"
    assert "ro" in bind["options"]


@pytest.mark.parametrize("read_only", [True, False])
def test_a_shared_bind_is_for_writing_unless_it_is_read_only(read_only: bool) -> None:
    binds = (Bind(source="/volume", target="/data", read_only=read_only, shared=True),)
    mounts = bundle_spec(msgspec.structs.replace(PLAN, binds=binds))["mounts"]
    options = next(mount["options"] for mount in mounts if mount["destination"] == "/data")
    # What the host has mounted below a volume would not be read-only.
    assert options == [*(("bind", "ro") if read_only else ("rbind", "rw")), "nosuid", "nodev"]


def test_tmp_and_shared_memory_are_open_to_all_users_and_have_no_small_limit() -> None:
    mounts = {mount["destination"]: mount for mount in bundle_spec(PLAN)["mounts"]}
    for target in ("/tmp", "/dev/shm"):
        assert mounts[target]["type"] == "tmpfs"
        assert "mode=1777" in mounts[target]["options"]
        assert not any(option.startswith("size=") for option in mounts[target]["options"])


def test_what_a_restore_compares_does_not_depend_on_paths_or_names() -> None:
    moved = msgspec.structs.replace(
        PLAN, rootfs=Path("/elsewhere"), netns=Path("/pins/m2"), hostname="reef", env=("B=2",)
    )
    one, other = bundle_spec(PLAN), bundle_spec(moved)
    assert one["mounts"] == other["mounts"]
    assert one["process"]["args"] == other["process"]["args"]
    assert one["process"]["rlimits"] == other["process"]["rlimits"]


def test_the_sentry_knows_the_limits_before_there_is_a_guest() -> None:
    def told(**of_plan: object) -> object:
        plan = msgspec.structs.replace(PLAN, **of_plan)
        return json.loads(bundle_spec(plan)["annotations"]["atoll.limits"])

    none = {"Tasks": 0, "OpenFiles": 0, "DiskBytesPerSecond": 0, "DiskBytes": 0, "DiskInodes": 0}
    none["DiskKeepFree"] = 0
    assert told() == none
    assert told(keep_free_percent=10) == {**none, "DiskKeepFree": 10}
    rates = Limits(processes=50, open_files=300, disk_mib_s=1.5)
    assert told(limits=rates) == {**none, "Tasks": 50, "OpenFiles": 300, "DiskBytesPerSecond": 1_572_864}
    disk = {**none, "DiskBytes": 2 << 20, "DiskInodes": 70}
    assert told(limits=Limits(disk_mib=2, files=70)) == disk
    growth = DiskGrowth(size_bytes=-4096, files=1)
    left = {"Limited": True, "Bytes": -4096, "Inodes": 1}
    assert told(limits=Limits(disk_mib=2, files=70), growth=growth) == {**disk, "DiskLeft": left}


@pytest.mark.parametrize(
    ("read_ahead", "earlier_pages", "after_ms", "touched"),
    [
        (True, None, "300", "false"),
        (True, Path("/pages-m1"), "-1", "true"),
        (False, None, "-1", "false"),
        (False, Path("/pages-m1"), "-1", "false"),
    ],
)
def test_the_sentry_reads_ahead_all_pages_or_the_touched_ones_or_none(
    read_ahead: bool, earlier_pages: Path | None, after_ms: str, touched: str
) -> None:
    plan = msgspec.structs.replace(PLAN, read_ahead=read_ahead, earlier_pages=earlier_pages)
    annotations = bundle_spec(plan)["annotations"]
    assert annotations["atoll.read-ahead-after-ms"] == after_ms
    assert annotations["atoll.read-touched"] == touched
