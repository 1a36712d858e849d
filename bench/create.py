"""From ``Sandbox.create`` to the first command's result, warm and cold, against raw runsc."""

from __future__ import annotations

from atoll import Sandbox
from bench.measure import Number, median_ms
from bench.raw import cold_run_ms
from bench.rooms import refill, supervisor

WARM_ROUNDS = 20
COLD_ROUNDS = 10
RAW = "cold runsc run"


class Creation:
    """A sandbox made in the timed part and killed in the untimed one."""

    def __init__(self) -> None:
        self._made: Sandbox | None = None

    def make(self) -> None:
        """Create it and run the first command."""
        self._made = Sandbox.create(keep=True)
        self._made.exec(["true"]).check()

    def kill(self) -> None:
        """End it, and let the pool fill up again."""
        if self._made is not None:
            self._made.kill()
            self._made.close()
        refill()


def numbers() -> list[Number]:
    """Measure."""
    creation = Creation()
    with supervisor(pool_size=1):
        creation.make()
        creation.kill()
        warm_ms = median_ms(creation.make, WARM_ROUNDS, between=creation.kill)
        with Sandbox.create():
            raw_ms = cold_run_ms()
    with supervisor(pool_size=0):
        cold_ms = median_ms(creation.make, COLD_ROUNDS, between=creation.kill)
    return [
        Number(
            name="warm create to first result", measured=warm_ms, promise=15,
            reference_name=RAW, reference=raw_ms, most_ratio=0.25,
        ),
        Number(
            name="cold create to first result", measured=cold_ms,
            reference_name=RAW, reference=raw_ms, most_ratio=2.2,
        ),
    ]  # fmt: skip
