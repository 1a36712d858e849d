"""Homes of the host's own tests, and work done inside their holder's namespaces by a child of one thread."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from atoll.host import Home, end_holder

Inside = Callable[[str], Any]

_PREAMBLE = """\
import json, os, sys
from pathlib import Path
from atoll.host import *
home = Home(sys.argv[1], run=sys.argv[2])
holder = ensure_holder(home)
join_holder(holder)
complete = not holder.user_namespace
def answer(value):
    print(json.dumps(value))
"""


_END = """\
for path in mounts_below(home.path):
    Mounts.unmount(path)
for path in home.layers.iterdir():
    remove_tree(path)
"""


def run_inside(home: Home, code: str) -> Any:
    """Run code inside the holder's namespaces; what it gives to ``answer`` is returned."""
    done = subprocess.run(
        [sys.executable, "-c", _PREAMBLE + textwrap.dedent(code), str(home.path), str(home.run)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout else None


@pytest.fixture
def host_home() -> Iterator[Home]:
    """A home of its own, gone afterwards with its holder and all that lies in it."""
    with tempfile.TemporaryDirectory(prefix="ah-", dir="/var/tmp") as top:
        home = Home(f"{top}/home")
        yield home
        if home.path.exists():
            # As an ordinary user only the namespace may remove what belongs to a sandbox's users.
            run_inside(home, _END)
        end_holder(home)


@pytest.fixture
def inside(host_home: Home) -> Inside:
    """Runs code inside the namespaces of ``host_home``."""
    return lambda code: run_inside(host_home, code)
