"""Real work inside a sandbox against the same work done natively on the same disk: chores.py says what."""

from __future__ import annotations

import json
from pathlib import Path

from atoll import Sandbox
from bench.measure import Number
from bench.native import run_natively
from bench.rooms import supervisor

ROUNDS = 3
PROGRAM = "/workspace/chores.py"
WHEELS = "django flask requests rich sqlalchemy numpy pydantic setuptools"
LONG_S = 1800.0
WORK_RATIO, SMALL_RATIO, BIG_RATIO = 1.5, 4.0, 1.2
NATIVE = "native"


def numbers() -> list[Number]:
    """Measure. What is missing is fetched from the package archives, before anything is timed."""
    with supervisor(pool_size=0), Sandbox.create() as sandbox:
        prepare(sandbox)
        native, inside = measured(sandbox)
    native["git clone and status"] = native["git clone"] + native["git status"]
    inside["git clone and status"] = inside["git clone"] + inside["git status"]
    native["1 GiB written and read"] = native["1 GiB written"] + native["1 GiB read"]
    inside["1 GiB written and read"] = inside["1 GiB written"] + inside["1 GiB read"]
    promised = {
        "git clone and status": WORK_RATIO,
        "pip install": WORK_RATIO,
        "make -j2": WORK_RATIO,
        "10,000 small files": SMALL_RATIO,
        "1 GiB written and read": BIG_RATIO,
    }
    return [
        Number(
            name=name, measured=inside[name], unit="s",
            reference_name=NATIVE, reference=native[name], most_ratio=promised.get(name),
        )
        for name in inside
    ]  # fmt: skip


def prepare(sandbox: Sandbox) -> None:
    """Put compilers, wheels, a repository and a C project there."""
    sandbox.files.upload(Path(__file__).with_name("chores.py"), PROGRAM)
    install = "apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev make"
    sandbox.run(install, user="root", timeout_s=LONG_S).check()
    sandbox.run(f"pip download -q -d /workspace/chores/wheels {WHEELS}", timeout_s=LONG_S).check()
    sandbox.exec(["python3", PROGRAM, "prepare"], timeout_s=LONG_S).check()


def measured(sandbox: Sandbox) -> tuple[dict[str, float], dict[str, float]]:
    """Median seconds of every chore, natively and inside; in turns, because other work on the host comes and goes."""
    argv = ["python3", PROGRAM, str(ROUNDS)]
    sandbox.suspend()
    native: dict[str, float] = json.loads(run_natively(sandbox.id, argv))
    inside: dict[str, float] = json.loads(sandbox.exec(argv, timeout_s=LONG_S).check().stdout)
    return native, inside
