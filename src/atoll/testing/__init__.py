"""For tests of atoll and of engines: an engine without a host, what every engine must do, and the host's books."""

from atoll.testing.conformance import PATIENCE_S, EngineConformance, Tick, Workshop, ticks_beyond
from atoll.testing.fake_engine import Call, FakeEngine, FakeHost, FakeMachine
from atoll.testing.ledger import Ledger, take_ledger

__all__ = [
    "PATIENCE_S",
    "Call",
    "EngineConformance",
    "FakeEngine",
    "FakeHost",
    "FakeMachine",
    "Ledger",
    "Tick",
    "Workshop",
    "take_ledger",
    "ticks_beyond",
]
