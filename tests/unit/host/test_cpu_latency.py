from __future__ import annotations

import struct
from pathlib import Path

import pytest

from atoll.host.checks import latency_check
from atoll.host.resources.cpu_latency import open_cpu_latency

ANY_US = 2_000_000_000


def written(device: Path) -> list[int]:
    return [number for (number,) in struct.iter_unpack("=i", device.read_bytes())]


@pytest.mark.parametrize(("driver", "wanted_us"), [("haltpoll", 0), ("intel_idle", 10), ("acpi_idle", 10)])
def test_nothing_is_asked_for_but_between_request_and_withdrawal(
    tmp_path: Path, driver: str, wanted_us: int
) -> None:
    device, kind = tmp_path / "device", tmp_path / "driver"
    device.touch()
    kind.write_text(f"{driver}\n")
    request = open_cpu_latency(device, kind)
    assert request
    request.request()
    request.withdraw()
    request.close()
    assert written(device) == [ANY_US, wanted_us, ANY_US]


def test_what_is_asked_for_after_the_end_is_written_into_no_other_file(tmp_path: Path) -> None:
    device, kind, other = tmp_path / "device", tmp_path / "driver", tmp_path / "other"
    device.touch()
    kind.write_text("haltpoll\n")
    request = open_cpu_latency(device, kind)
    assert request
    request.close()
    with other.open("wb"):  # it gets the lowest number that is free
        request.request()
        request.withdraw()
    assert (other.read_bytes(), written(device)) == (b"", [ANY_US])


def test_where_nothing_sleeps_or_nothing_may_be_asked_for_there_is_no_request(tmp_path: Path) -> None:
    device, driver = tmp_path / "device", tmp_path / "driver"
    driver.write_text("haltpoll\n")
    assert open_cpu_latency(device, driver) is None
    device.touch()
    assert open_cpu_latency(device, tmp_path / "missing") is None
    driver.write_text("none\n")
    assert open_cpu_latency(device, driver) is None
    assert written(device) == []


def test_a_user_who_may_not_ask_is_told_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert latency_check(tmp_path / "device") is None
    device = tmp_path / "device"
    device.touch()
    monkeypatch.setattr("atoll.host.checks.open_cpu_latency", lambda device: None)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    check = latency_check(device)
    assert check
    assert (check.level, str(device) in check.message) == ("note", True)
    assert str(check.remedy).startswith("sudo chown ")
    assert str(check.remedy).endswith(f" {device}")
