"""Evaluates four strategies of the sandbox ``prepared``, and stays in the third unless it may go on.

Its arguments: the journal, a file that gets the name of each strategy that ran, and ``go``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from atoll import Sandbox
from atoll.evals import Evaluation

JOURNAL, RAN, *GO = map(Path, sys.argv[1:])


def task(sandbox: Sandbox, name: str) -> bool:
    sandbox.run("test $(cat /tmp/number) = 41").check()
    if name == "c" and not GO:
        note("held")
        time.sleep(100)
    note(name)
    return True


def note(text: str) -> None:
    with RAN.open("a") as file:
        print(text, file=file)


with Sandbox.connect("prepared") as prepared:
    Evaluation(prepared, {name: name for name in "abcd"}, task, at_once=1, journal=JOURNAL).run()
