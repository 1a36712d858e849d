"""Code in a sandbox of the code interpreter's template: its first result, when it runs and when it has slept."""

from __future__ import annotations

import statistics
import time

from atoll import Sandbox, Template, Templates
from atoll.toolkits import install
from atoll.toolkits.code import NAME
from bench.measure import Number
from bench.rooms import refill, supervisor

ROUNDS = 10
CODE = "sum(range(1000))"
RESULT = "499500"
WARM_MS, SLEPT_MS = 60.0, 150.0


def numbers() -> list[Number]:
    """Measure, in a new sandbox each time: the first run is the one that people wait for."""
    made, warm, slept = [], [], []
    with supervisor(pool_size=2):
        ready()
        for _ in range(ROUNDS):
            refill()
            began = time.perf_counter()
            with Sandbox.create(Template(NAME)) as sandbox:
                warm.append(first_ms(sandbox))
                made.append((time.perf_counter() - began) * 1000)
            with Sandbox.create(Template(NAME)) as sandbox:
                sandbox.suspend()
                slept.append(first_ms(sandbox))
    return [
        Number(name="first code result in a new sandbox", measured=statistics.median(warm), promise=WARM_MS),
        Number(name="first code result after sleep", measured=statistics.median(slept), promise=SLEPT_MS),
        Number(name="create from the template to the first code result", measured=statistics.median(made)),
    ]


def ready() -> None:
    """Have the template; building it takes a minute or two."""
    if not any(info.name == NAME and info.build() for info in Templates.list()):
        install(NAME)


def first_ms(sandbox: Sandbox) -> float:
    """Run code, which must give the right result, and return how many milliseconds it took."""
    began = time.perf_counter()
    said = sandbox.code.run(CODE).check().text
    took_ms = (time.perf_counter() - began) * 1000
    if said != RESULT:
        raise SystemExit(f"bench: {CODE} is {said!r}")
    return took_ms
