"""For tests of atoll and of engines: an engine without a host, what every engine must do, and the host's books."""

from atoll.testing.conformance import PATIENCE_S, EngineConformance, Tick, Workshop, ticks_beyond
from atoll.testing.fake_engine import Call, FakeEngine, FakeHost, FakeMachine, FakeSpare
from atoll.testing.ledger import Ledger, group_roots, take_ledger
from atoll.testing.spare_conformance import SpareConformance

__all__ = [
    "PATIENCE_S",
    "Call",
    "EngineConformance",
    "FakeEngine",
    "FakeHost",
    "FakeMachine",
    "FakeSpare",
    "Ledger",
    "SpareConformance",
    "Tick",
    "Workshop",
    "group_roots",
    "take_ledger",
    "ticks_beyond",
]
