"""Programs of the home's user hear when a sandbox falls asleep and wakes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.waiting import until

from atoll import Sandbox


def test_programs_in_the_home_hear_of_sleep_and_wake(module_home: Path) -> None:
    log = module_home / "heard.json"
    for event in ("before-suspend", "after-wake"):
        path = module_home / f"hooks/{event}.d/50-log"
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\ncat >> {log}\n")
        path.chmod(0o755)
    with Sandbox.create(metadata={"for": "ann"}) as sandbox:
        for turn in range(2):
            sandbox.suspend()
            assert sandbox.run("echo here").stdout == "here\n"
            until(lambda: len(log.read_text().splitlines()) == 2 * turn + 2)  # noqa: B023
        heard = [json.loads(line) for line in log.read_text().splitlines()]
        assert [(one["event"], one["why"]) for one in heard] == [
            ("before-suspend", "request"),
            ("after-wake", "suspended"),
        ] * 2
        assert {one["sandbox_id"] for one in heard} == {sandbox.id}
        assert heard[0]["metadata"] == {"for": "ann"}
