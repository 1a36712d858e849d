"""Engines run guests: the contract of an engine, and the engines in this build."""

from atoll.engines.base import (
    Bind,
    Capabilities,
    DiskGrowth,
    Engine,
    Machine,
    MachineEndedError,
    MachinePlan,
    MachineStats,
    PrestartedMachine,
    PrestartPlan,
    Uplink,
)
from atoll.engines.gvisor import RUNSC_VERSION, GvisorEngine
from atoll.engines.registry import DEFAULT_ENGINE, ENGINES, make_engine

__all__ = [
    "DEFAULT_ENGINE",
    "ENGINES",
    "RUNSC_VERSION",
    "Bind",
    "Capabilities",
    "DiskGrowth",
    "Engine",
    "GvisorEngine",
    "Machine",
    "MachineEndedError",
    "MachinePlan",
    "MachineStats",
    "PrestartedMachine",
    "PrestartPlan",
    "Uplink",
    "make_engine",
]
