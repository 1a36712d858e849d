from __future__ import annotations

import json
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

import pytest

from atoll.cli.__main__ import run
from atoll.cli.output import show_json


def test_json_holds_no_character_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    text = "\x1b[2J \x9b2J \x7f \x85 é \n"
    show_json({"stdout": text})
    shown = capsys.readouterr().out
    assert json.loads(shown) == {"stdout": text}
    assert not [char for char in shown if char != "\n" and (ord(char) < 32 or 127 <= ord(char) < 160)]
    assert "é" in shown


@pytest.mark.parametrize(
    ("opens", "arguments"),
    [
        ("policy.asked", ["policy", "log", "work", "--json"]),
        ("logs.asked", ["logs", "work", "--follow", "--json"]),
        ("service.held", ["service", "logs", "work", "web", "--json"]),
    ],
)
def test_values_that_come_one_by_one_are_a_line_each(
    opens: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pieces = [SimpleNamespace(stream="stdout", text=text) for text in ("one\n", "two\x9b")]
    sandbox = MagicMock()
    sandbox.__enter__.return_value = sandbox
    sandbox.logs.return_value = [piece.text for piece in pieces]
    sandbox.services.logs.return_value = pieces
    sandbox.egress.decisions.return_value = [{"text": piece.text} for piece in pieces]
    with patch(f"atoll.cli.commands.{opens}", return_value=sandbox):
        assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert [json.loads(line)["text"] for line in shown.splitlines()] == ["one\n", "two\x9b"]
    assert "\x9b" not in shown
