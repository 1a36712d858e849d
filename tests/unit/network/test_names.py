"""The file of a guest's names, as the next supervisor reads it."""

from __future__ import annotations

from pathlib import Path

from atoll.network.names import MOST_NAMES, NameTable


def test_names_outlive_the_process_that_gave_them_addresses(tmp_path: Path) -> None:
    first = NameTable(tmp_path / "names")
    address = first.address_of("api.example.com")
    assert NameTable(tmp_path / "names").all() == {address: "api.example.com"}


def test_a_last_line_without_its_end_is_no_shorter_name(tmp_path: Path) -> None:
    file = tmp_path / "names"
    file.write_text("1 a.example\n2 b.exam")
    assert NameTable(file).all() == {"198.18.0.1": "a.example"}
    assert file.read_text() == "1 a.example\n"


def test_a_file_with_too_many_names_gives_the_newest(tmp_path: Path) -> None:
    file = tmp_path / "names"
    file.write_text("".join(f"{number} n{number}.example\n" for number in range(1, MOST_NAMES + 11)))
    names = list(NameTable(file).all().values())
    assert len(names) == MOST_NAMES
    assert (names[0], names[-1]) == ("n11.example", f"n{MOST_NAMES + 10}.example")
