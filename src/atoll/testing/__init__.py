"""For tests of atoll and of engines: a fake engine, the engine contract, and the host's ledger."""

from atoll.testing.conformance import PATIENCE_S, EngineConformance, Tick, Workshop, ticks_beyond
from atoll.testing.fake_engine import Call, FakeEngine, FakeHost, FakeMachine, FakePrestarted
from atoll.testing.ledger import Ledger, group_roots, take_ledger
from atoll.testing.prestarted_conformance import PrestartedConformance

__all__ = [
    "PATIENCE_S",
    "Call",
    "EngineConformance",
    "FakeEngine",
    "FakeHost",
    "FakeMachine",
    "FakePrestarted",
    "Ledger",
    "PrestartedConformance",
    "Tick",
    "Workshop",
    "group_roots",
    "take_ledger",
    "ticks_beyond",
]
