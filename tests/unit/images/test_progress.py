from __future__ import annotations

from typing import Any

from atoll.images.progress import BuildProgress
from atoll.types import Progress

OUTPUT = """\
I: running apt-get update...
Get:1 http://mirror.test/debian bookworm InRelease [151 kB]
I: downloading packages with apt...
0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.
Get:1 http://mirror.test/debian bookworm/main amd64 gcc-12-base amd64 12.2.0-14+deb12u1 [37.6 kB]
Get:2 http://mirror.test/debian bookworm/main amd64 libc6 amd64 2.36-9+deb12u14 [2759 kB]
I: extracting archives...
Unpacking gcc-12-base:amd64 (12.2.0-14+deb12u1) ...
Setting up gcc-12-base:amd64 (12.2.0-14+deb12u1) ...
Unpacking libc6:amd64 (2.36-9+deb12u14) ...
Setting up libc6:amd64 (2.36-9+deb12u14) ...
I: installing remaining packages inside the chroot...
0 upgraded, 1 newly installed, 0 to remove and 0 not upgraded.
Get:1 http://mirror.test/debian bookworm/main amd64 jq amd64 1.6-2.1 [64 kB]
Unpacking jq (1.6-2.1) ...
Setting up jq (1.6-2.1) ...
Processing triggers for libc-bin (2.36-9+deb12u14) ...
I: cleaning package lists and apt cache...
"""


def reports(text: str) -> list[Progress]:
    parser = BuildProgress()
    return [report for line in text.splitlines() if (report := parser.feed(line))]


def test_each_round_is_named_and_counts_its_packages() -> None:
    assert [(each.step, each.done, each.total) for each in reports(OUTPUT)] == [
        ("reading the package lists", 0, None),
        ("downloading the first packages", 1, 2),
        ("downloading the first packages", 2, 2),
        ("extracting the first packages", 0, None),
        ("installing the first packages", 0.5, 2),
        ("installing the first packages", 1, 2),
        ("installing the first packages", 1.5, 2),
        ("installing the first packages", 2, 2),
        ("downloading the other packages", 1, 1),
        ("installing the other packages", 0.5, 1),
        ("installing the other packages", 1, 1),
        ("finishing", 0, None),
    ]


def test_the_whole_goes_once_from_beginning_to_end_whatever_apt_repeats() -> None:
    wholes: list[Any] = [each.whole for each in reports(OUTPUT + OUTPUT)]
    assert wholes == sorted(wholes)
    assert wholes[0] == 0 and wholes[7] == 0.4 and wholes[10] == wholes[11] == 0.97


def test_done_never_passes_total() -> None:
    again = OUTPUT + "Setting up jq (1.6-2.1) ...\nSetting up jq (1.6-2.1) ...\n"
    assert all(each.done <= each.total for each in reports(again) if each.total is not None)


def test_rubbish_tells_nothing() -> None:
    assert reports("Get:1\n\nSetting up\nUnpacking x\n\ufffd\n") == []
