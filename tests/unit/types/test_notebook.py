"""How values look in a notebook: nothing that a guest wrote becomes markup, and nothing is endless."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from atoll.types import ExecResult, Limits, Rows, SandboxInfo, SandboxStats, StatsSample

ALLOWED = {"table", "thead", "tbody", "tr", "th", "td", "p", "b", "div", "pre"}
HOSTILE = (
    "</pre></td><script>alert(1)</script><img src=x onerror=alert(2)>&lt;\"'\x1b[31mred\x1b]0;t\x07\u202e\x00"
)


class Tags(HTMLParser):
    """Which tags there are, with which attributes, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def info(**changes: object) -> SandboxInfo:
    values: dict[str, object] = {
        "sandbox_id": "a" * 20,
        "name": "work",
        "image": "base",
        "state": "running",
        "created_at": 1_700_000_000.0,
        "changed_at": 1_700_000_000.0,
        "env": {"TOKEN": "hidden"},
        "metadata": {},
        "network": "internet",
        "limits": Limits(memory_mib=512),
        "user": "user",
        "cwd": "/home/user",
    }
    return SandboxInfo(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        ExecResult(
            exit_code=1, stdout_bytes=HOSTILE.encode(), stderr_bytes=HOSTILE.encode(), command=HOSTILE
        ),
        info(name=HOSTILE, reason=HOSTILE, metadata={HOSTILE: "x"}),
        Rows([info(name=HOSTILE), info(name=HOSTILE)]),
    ],
    ids=["result", "info", "rows"],
)
def test_what_a_guest_wrote_is_text_and_never_markup(value: ExecResult) -> None:
    shown = Tags(value._repr_html_())
    assert shown.tags <= ALLOWED
    assert shown.attributes <= {"style"}
    assert "alert(1)" in shown.text
    assert not {"\x1b", "\x00", "\u202e"} & set(shown.text)


def test_a_result_shows_its_end_and_how_it_ended() -> None:
    data = b"begin" + b"x" * 5_000_000 + b"end"
    shown = ExecResult(exit_code=3, stdout_bytes=data, truncated=True, command="make")._repr_html_()
    assert len(shown) < 100_000
    text = Tags(shown).text
    assert "make: exit code 3, not all of its output" in text
    assert text.endswith("end")
    assert "begin" not in text


def test_a_long_list_is_cut_and_says_so() -> None:
    rows = Rows(
        StatsSample(
            at=float(number),
            vcpus=1.0,
            cpu_percent=None,
            memory_bytes=5_000_000,
            memory_limit_bytes=None,
            disk_bytes=0,
            disk_limit_bytes=None,
        )
        for number in range(1, 1000)
    )
    shown = rows._repr_html_()
    assert shown.count("<tr>") == 101
    assert "899 more" in shown
    assert "5,000,000" in shown
    assert len(shown) < 200_000
    assert Rows([])._repr_html_() == "<p>nothing</p>"
    assert rows == list(rows)


def test_values_of_variables_are_not_shown() -> None:
    shown = info()._repr_html_()
    assert "TOKEN" in shown
    assert "hidden" not in shown
    assert "memory_mib=512" in shown


def test_what_a_sandbox_uses_is_a_table() -> None:
    stats = SandboxStats(
        state="running",
        cpu_s=1.5,
        memory_bytes=1 << 20,
        memory_limit_bytes=None,
        disk_bytes=5,
        processes=3,
        received_bytes=0,
        sent_bytes=0,
    )
    text = Tags(stats._repr_html_()).text
    assert "cpu_s1.5" in text
    assert "memory_bytes1,048,576" in text
