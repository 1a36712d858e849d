from atoll.cli.text import age, plain, size, table


def test_control_characters_of_a_guest_reach_no_terminal() -> None:
    shown = plain("a\x1b]0;owned\x07b\nc\u202ed\x9be")
    assert shown == "a\\x1b]0;owned\\x07b\\nc\\u202ed\\x9be"
    assert shown.isprintable()


def test_a_row_of_a_table_stays_one_line_whatever_its_cells_hold() -> None:
    assert table(["ID", "COMMENT"], [["a", "two\nlines\x1b[2J"]]) == "ID  COMMENT\na   two\\nlines\\x1b[2J"


def test_columns_stay_aligned_after_wide_characters() -> None:
    lines = table(["NAME", "SIZE"], [["環礁", "1"], ["atoll", "2"]]).splitlines()
    assert lines == ["NAME   SIZE", "環礁   1", "atoll  2"]


def test_sizes_and_ages_are_in_their_largest_unit() -> None:
    assert [size(None), size(0), size(1536), size(3 << 30)] == ["-", "0 B", "1.5 KiB", "3.0 GiB"]
    assert [age(100, 90), age(0, 59), age(0, 7200), age(0, 90000)] == ["0 s", "59 s", "2 h", "1 d"]
