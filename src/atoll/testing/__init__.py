"""For tests of atoll and of engines: a fake engine, the engine contract, and the host's ledger."""

from atoll.testing.conformance import EngineConformance
from atoll.testing.fake_engine import (
    CAPABILITIES,
    Call,
    FakeCoreEngine,
    FakeCoreMachine,
    FakeEngine,
    FakeHost,
    FakeMachine,
    FakePrestarted,
    fake_engine,
)
from atoll.testing.ledger import Ledger, group_roots, take_ledger
from atoll.testing.prestarted_conformance import PrestartedConformance
from atoll.testing.workshop import FILE_BYTES, PATIENCE_S, Tick, Workshop, claimed, ticks_beyond

__all__ = [
    "CAPABILITIES",
    "FILE_BYTES",
    "PATIENCE_S",
    "Call",
    "EngineConformance",
    "FakeCoreEngine",
    "FakeCoreMachine",
    "FakeEngine",
    "FakeHost",
    "FakeMachine",
    "FakePrestarted",
    "Ledger",
    "PrestartedConformance",
    "Tick",
    "Workshop",
    "claimed",
    "fake_engine",
    "group_roots",
    "take_ledger",
    "ticks_beyond",
]
