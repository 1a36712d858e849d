"""The blocks of code in the documentation run as they stand there, page by page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import homes
from tests.snippets import Snippet, snippets

# Their pages are whole programs, each with its output: test_cookbook.py runs them.
PROGRAMS = ("cookbook", "coming-from")
# What a reader has when he comes to a page. README's own example has a test in test_examples.py.
_BEFORE = {
    "files-and-processes": """
import sys
from atoll import Sandbox
sandbox = Sandbox.create()
sandbox.files.write("data.txt", "x\\ny\\n")
sandbox.files.write("Makefile", "all:\\n\\techo made\\n")
path, source, target = "/workspace/new", "/workspace/a", "/workspace/c"
sandbox.processes.start(["python3", "-m", "http.server", "8000"])
""",
    "lifecycle": "from atoll import Sandbox\n",
    "restores": "from atoll import Sandbox\nsandbox = Sandbox.create()\n",
    "secrets": "import os\nos.environ['MAIL_TOKEN'] = 'a token'\n",
    "states-and-snapshots": "from atoll import Sandbox\nsandbox = Sandbox.create(name='work')\n",
    "volumes": "from atoll import Volumes\n",
}
# A sandbox that reads accounts at a bank, and has paid after somebody has approved it.
_AUDITED = r"""
python3 -m http.server --bind 127.0.0.1 0 > bank.log 2>&1 & bank=$!
trap 'kill $bank' EXIT
until port=$(grep -o 'port [0-9]*' bank.log | cut -d ' ' -f 2) && test -n "$port"; do sleep 0.05; done
echo a-token-of-the-bank | atoll secret create bank --host host.atoll.internal
cat > policy.toml <<END
[[rules]]
name = "pay"
action = "ask"
hosts = ["host.atoll.internal"]
ports = [$port]
methods = ["POST"]
inject = [{ secret = "bank", format = "Bearer {}" }]

[[rules]]
name = "read"
hosts = ["host.atoll.internal"]
ports = [$port]
methods = ["GET"]
inject = [{ secret = "bank", format = "Bearer {}" }]
END
atoll create --name work --on-behalf-of "Ada Lovelace" --network policy.toml
atoll asks --follow > asks.txt & asks=$!
trap 'kill $bank $asks' EXIT
sleep 0.5
atoll exec work -- curl -s "http://host.atoll.internal:$port/" > /dev/null
atoll exec work -- curl -s -m 30 -d 'to=ACME' "http://host.atoll.internal:$port/v1/payments" > /dev/null &
payment=$!
until ask=$(atoll asks work --json | grep -o '"ask_id":"[0-9a-f]*"' | cut -d '"' -f 4)
    test -n "$ask"
do sleep 0.05; done
atoll approve "$ask"
wait $payment
atoll exec work -- curl -s "http://evil.example:$port/" > /dev/null || true
atoll team create reef
atoll key create reef --name bob > key.txt
sleep 0.5
"""
_SHELL_BEFORE = {
    "auditor": _AUDITED,
    "evals": "atoll create --name work",
    "files-and-processes": "atoll create --name work && atoll exec work -- mkdir /workspace/results",
    "secrets": "echo a token > mail.token",
    "states-and-snapshots": "atoll create --name work && atoll snapshot create work --name ready",
    "teams": "atoll team create reef --lease 24h",
}


def _by_page(language: str) -> dict[str, list[Snippet]]:
    pages: dict[str, list[Snippet]] = {}
    for one in snippets(language):
        if one.why is None and one.page != "README" and one.directory not in PROGRAMS:
            pages.setdefault(one.page, []).append(one)
    return pages


PYTHON, SHELL = _by_page("python"), _by_page("sh")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A working directory with the files that the pages name."""
    (tmp_path / "local" / "directory").mkdir(parents=True)
    (tmp_path / "local" / "directory" / "file").write_text("content")
    (tmp_path / "table.csv").write_text("1,2\n")
    (tmp_path / "data.csv").write_text("1,2\n")
    return tmp_path


@pytest.mark.parametrize("page", PYTHON)
def test_the_python_of_a_page_runs(page: str, place: Path) -> None:
    blocks = [_BEFORE.get(page, ""), *(one.code for one in PYTHON[page])]
    if page == "volumes":  # its second block is about another volume
        blocks.insert(2, "Volumes.create('data')\nVolumes.files('data').write('out/model.bin', b'1')\n")
    # Blocks may await, as in a notebook.
    code = (
        "import ast, asyncio, inspect\n"
        f"for block in {blocks!r}:\n"
        "    done = eval(compile(block, 'block', 'exec', ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), globals())\n"
        "    if inspect.iscoroutine(done):\n"
        "        asyncio.run(done)\n"
    )
    with homes.make_home():
        _run([sys.executable, "-c", code], place)


@pytest.mark.parametrize("page", SHELL)
def test_the_shell_of_a_page_runs(page: str, place: Path) -> None:
    lines = [_SHELL_BEFORE.get(page, ""), *(one.code for one in SHELL[page])]
    with homes.make_home():
        _run(["sh", "-e", "-c", "\n".join(lines)], place)


def _run(command: list[str], place: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=place, capture_output=True, text=True, timeout=240, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, done.stdout + done.stderr
