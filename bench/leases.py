"""Leases: how late they end, and what sleeping without memory takes."""

from __future__ import annotations

import time

from atoll import Lifecycle, Sandbox
from bench.measure import Number, median_ms
from bench.rooms import supervisor

ROUNDS = 10
AT_ONCE = 20
LENGTH_S = 3.0


def numbers() -> list[Number]:
    """Measure."""
    with supervisor(pool_size=1):
        with Sandbox.create() as sandbox:
            sandbox.exec(["true"]).check()

            def stop() -> None:
                sandbox.suspend(memory=False)

            stop_ms = median_ms(stop, ROUNDS, between=lambda: sandbox.exec(["true"]))
            stop()
            boot_ms = median_ms(lambda: sandbox.exec(["true"]), ROUNDS, between=stop)
        late_ms = lateness_ms()
    return [
        Number(name="20 leases that end at once: the last one sleeps after", measured=late_ms, promise=2000),
        Number(name="suspend without memory", measured=stop_ms, promise=100),
        Number(name="wake from that to the first result", measured=boot_ms, promise=250),
    ]


def lateness_ms() -> float:
    """Return how long after the last of many leases' ends all of their sandboxes slept."""
    lifecycle = Lifecycle(ttl_s=600, on_expiry="suspend")
    made = [Sandbox.create(lifecycle=lifecycle) for _ in range(AT_ONCE)]
    ends_at = max(sandbox.set_lease(LENGTH_S).ends_at or 0 for sandbox in made)
    while any(sandbox.info().state == "running" for sandbox in made):
        time.sleep(0.01)
    late_s = max(sandbox.info().changed_at for sandbox in made) - ends_at
    for sandbox in made:
        sandbox.kill()
        sandbox.close()
    return late_s * 1000
