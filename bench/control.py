"""What the server adds to control calls: each through the E2B API and through the SDK on this machine, by turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import httpx

from atoll import Sandbox
from bench.measure import Number
from bench.rooms import refill, supervisor
from bench.served import served

ROUNDS = 40
PROMISE_MS = 5.0


def numbers() -> list[Number]:
    """Measure."""
    with supervisor(pool_size=2), served() as variables:
        key = {"x-api-key": variables["E2B_API_KEY"]}
        with httpx.Client(base_url=variables["E2B_API_URL"], headers=key, timeout=60) as api:
            return [*looks(api), creates(api)]


def looks(api: httpx.Client) -> list[Number]:
    """Calls that change nothing, or next to nothing."""
    id_ = api.post("/v2/sandboxes", json={"templateID": "base", "timeout": 3600}).json()["sandboxID"]
    try:
        with Sandbox.connect(id_) as sandbox:
            return [
                added("info", lambda: api.get(f"/sandboxes/{id_}"), sandbox.info),
                added("list", lambda: api.get("/v2/sandboxes"), lambda: list(Sandbox.list())),
                added(
                    "set timeout",
                    lambda: api.post(f"/sandboxes/{id_}/timeout", json={"timeout": 3600}),
                    lambda: sandbox.set_lease(3600),
                ),
            ]
    finally:
        api.delete(f"/sandboxes/{id_}")


def creates(api: httpx.Client) -> Number:
    """Make and kill a sandbox from the warm pool."""

    def served_create() -> object:
        return api.post("/v2/sandboxes", json={"templateID": "base"})

    def kill_served(answer: httpx.Response) -> None:
        api.delete(f"/sandboxes/{answer.json()['sandboxID']}")

    through, direct = [], []
    for _ in range(ROUNDS // 2):
        refill()
        took_ms, answer = timed(served_create)
        through.append(took_ms)
        kill_served(answer)  # type: ignore[arg-type]
        refill()
        took_ms, sandbox = timed(Sandbox.create)
        direct.append(took_ms)
        sandbox.kill()  # type: ignore[attr-defined]
    return number("create", through, direct)


def added(name: str, through: Callable[[], object], direct: Callable[[], object]) -> Number:
    """What the server adds to one call, asked for by turns with the call itself."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for call, taken in zip((through, direct), times, strict=True):
            taken.append(timed(call)[0])
    return number(name, *times)


def number(name: str, through: list[float], direct: list[float]) -> Number:
    """The difference of the medians."""
    direct_ms = statistics.median(direct)
    return Number(
        name=f"{name} through the server, added", measured=statistics.median(through) - direct_ms,
        promise=PROMISE_MS, reference_name="the SDK on this machine", reference=direct_ms,
    )  # fmt: skip


def timed(call: Callable[[], object]) -> tuple[float, object]:
    """How many milliseconds a call takes, and its result."""
    began = time.perf_counter()
    result = call()
    took_ms = (time.perf_counter() - began) * 1000
    if isinstance(result, httpx.Response):
        result.raise_for_status()
    return took_ms, result
