from __future__ import annotations

from pathlib import Path

from atoll.host import Home
from atoll.host.checks import (
    clock_check,
    disk_check,
    disk_kind_check,
    ids_check,
    kernel_check,
    namespaces_check,
    ptrace_check,
)
from atoll.host.namespaces.userns import IdRange, free_range, subordinate_range

GIB = 1 << 30


def test_the_app_armor_switch_of_ubuntu_is_named_with_its_command() -> None:
    settings = {"kernel.apparmor_restrict_unprivileged_userns": "1", "user.max_user_namespaces": "96365"}
    check = namespaces_check("Permission denied", settings)
    assert check.level == "error"
    assert check.remedy == "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"


def test_a_limit_of_no_user_namespaces_is_named() -> None:
    check = namespaces_check("No space left on device", {"user.max_user_namespaces": "0"})
    assert check.remedy == "sudo sysctl -w user.max_user_namespaces=15000"


def test_settings_that_forbid_nothing_in_practice_are_no_finding() -> None:
    assert namespaces_check("ok", {"kernel.apparmor_restrict_unprivileged_userns": "1"}).level == "ok"


def test_a_container_without_rights_is_told_what_it_needs() -> None:
    check = namespaces_check("Operation not permitted", {})
    assert check.level == "error"
    assert "container" in str(check.remedy)


def test_a_home_that_holds_no_layers_is_told_what_that_costs_and_another_place() -> None:
    home = Home("/somewhere")
    check = disk_kind_check("Invalid argument", lacks_ids=False, forced=False, home=home, kind="nfs4")
    assert check is not None
    assert check.level == "warning"
    assert "nfs4" in check.message
    assert "a crash loses" in check.message
    assert "ATOLL_HOME" in str(check.remedy)


def test_a_user_with_one_id_is_told_the_remedy() -> None:
    ranges = ids_check("/etc/subuid gives the user me no ids for sandboxes", 0)
    program = ids_check("the program newuidmap is missing", 0)
    assert (ranges.level, program.level) == ("warning", "warning")
    assert "usermod" in str(ranges.remedy)
    assert program.remedy == "sudo apt install uidmap"


def test_old_kernels_and_foreign_processors_are_refused() -> None:
    assert kernel_check("5.10.0-28-amd64", "x86_64", is_root=False).level == "error"
    assert kernel_check("6.1.0", "riscv64", is_root=True).level == "error"
    assert kernel_check("6.8.0-41-generic", "aarch64", is_root=True).level == "ok"


def test_the_server_of_root_takes_a_newer_kernel_than_sandboxes_do() -> None:
    check = kernel_check("5.11.0-49-generic", "x86_64", is_root=True)
    assert (check.level, "`atoll serve` needs 5.12 if root" in check.message) == ("warning", True)
    assert kernel_check("5.11.0-49-generic", "x86_64", is_root=False).level == "ok"
    assert kernel_check("5.12.0", "x86_64", is_root=True).level == "ok"


def test_a_disk_is_judged_by_the_room_on_it() -> None:
    levels = [disk_check(size, Path("/home")).level for size in (GIB, 5 * GIB, 50 * GIB)]
    assert levels == ["error", "warning", "ok"]


def test_a_clock_in_the_past_is_noticed() -> None:
    assert clock_check(0, 1_800_000_000).level == "error"
    assert clock_check(1_800_000_001, 1_800_000_000).level == "ok"


def test_only_a_total_ban_of_ptrace_matters() -> None:
    assert ptrace_check("1") is None
    check = ptrace_check("3")
    assert check is not None and check.level == "error"


def test_ranges_are_found_by_name_or_number(tmp_path: Path) -> None:
    table = tmp_path / "subuid"
    table.write_text("# comment\nother:100000:65536\nme:bad:65536\n1000:200000:70000\nme:300000:10\n")
    assert subordinate_range(table, "me", 1000) == IdRange(200000, 70000)
    assert subordinate_range(table, "me", 1) == IdRange(300000, 10)
    assert subordinate_range(table, "nobody", 65534) is None
    assert subordinate_range(tmp_path / "none", "me", 1000) is None


def test_the_range_to_give_a_user_overlaps_none_that_is_given_in_either_file(tmp_path: Path) -> None:
    users, groups = tmp_path / "subuid", tmp_path / "subgid"
    assert free_range(users, groups) == IdRange(100000, 65536)
    users.write_text("x:165536:65536\ny:100000:65536\n")
    groups.write_text("x:165536:65536\n1001:231072:100\nbad\n")
    assert free_range(users, groups) == IdRange(231172, 65536)
