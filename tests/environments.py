"""Environments with packages that the tests' own has not: made once, and found again by later runs."""

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

_BOUND_S = 600
_UV = "0.13.9"


def python_with(name: str, *requirements: str) -> Path:
    """The interpreter of an environment that has these packages."""
    wanted = hashlib.sha256("\n".join(requirements).encode()).hexdigest()[:12]
    name = f"{name}-{wanted}-py{sys.version_info[0]}.{sys.version_info[1]}"
    with made_once(name) as directory:
        if directory is not None:
            uv = str(_uv())
            run([uv, "venv", "--quiet", "--python", sys.executable, str(directory)])
            run([uv, "pip", "install", "--quiet", "--python", f"{directory}/bin/python", *requirements])
    return CACHE / name / "bin/python"


def _uv() -> Path:
    """The program that installs packages in a tenth of pip's time."""
    name = f"uv-{_UV}"
    with made_once(name) as directory:
        if directory is not None:
            run([sys.executable, "-m", "venv", str(directory)])
            run([f"{directory}/bin/pip", "install", "--quiet", "--disable-pip-version-check", f"uv=={_UV}"])
    return CACHE / name / "bin/uv"


@contextmanager
def made_once(name: str) -> Iterator[Path | None]:
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


def run(argv: list[str], cwd: Path | None = None) -> None:
    """Run a program that must end well."""
    ran = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=_BOUND_S)
    assert ran.returncode == 0, f"{argv}: {ran.stdout}{ran.stderr}"
