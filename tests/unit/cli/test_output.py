from __future__ import annotations

import json

import pytest

from atoll.cli.output import show_json


def test_json_holds_no_character_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    text = "\x1b[2J \x9b2J \x7f \x85 é \n"
    show_json({"stdout": text})
    shown = capsys.readouterr().out
    assert json.loads(shown) == {"stdout": text}
    assert not [char for char in shown if char != "\n" and (ord(char) < 32 or 127 <= ord(char) < 160)]
    assert "é" in shown
