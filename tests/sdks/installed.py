"""The published SDKs, each version in an environment of its own that later runs find again."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.homes import CACHE

JS = Path(__file__).parent / "js"
_BOUND_S = 600


def python_sdk(version: str) -> Path:
    """The interpreter of an environment that has this version of the Python SDK, and pytest."""
    name = f"e2b-{version}-py{sys.version_info[0]}.{sys.version_info[1]}"
    with _made_once(name) as directory:
        if directory is not None:
            _run([sys.executable, "-m", "venv", str(directory)])
            _run(
                [f"{directory}/bin/pip", "install", "--quiet", f"e2b=={version}", "pytest", "anyio", "httpx"]
            )
    return CACHE / name / "bin/python"


def javascript_sdk() -> Path:
    """A project with the JavaScript SDK and the cases."""
    wanted = hashlib.sha256((JS / "package.json").read_bytes()).hexdigest()[:12]
    name = f"e2b-js-{wanted}"
    with _made_once(name) as directory:
        if directory is not None:
            directory.mkdir()
            shutil.copy(JS / "package.json", directory)
            _run(
                ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"], cwd=directory
            )
    for case in JS.glob("*.*js"):
        shutil.copy(case, CACHE / name)
    return CACHE / name


@contextmanager
def _made_once(name: str) -> Iterator[Path | None]:
    """The directory to fill, or None when an earlier run has filled it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    done = CACHE / name / "complete"
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            yield None
            return
        shutil.rmtree(CACHE / name, ignore_errors=True)
        yield CACHE / name
        done.touch()


def _run(argv: list[str], cwd: Path | None = None) -> None:
    ran = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=_BOUND_S)
    assert ran.returncode == 0, f"{argv}: {ran.stdout}{ran.stderr}"
