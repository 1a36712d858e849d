"""Engines run guests: the contract of an engine, and the engines in this build."""

from atoll.engines.base import (
    Bind,
    DiskGrowth,
    Engine,
    Machine,
    MachineEndedError,
    MachinePlan,
    MachineStats,
    PrestartedMachine,
    PrestartPlan,
    Uplink,
    VolumeRoom,
)
from atoll.engines.capabilities import (
    AdjustableLimits,
    DetachableFiles,
    DiskBudget,
    LazyMemory,
    MemoryReadings,
    OwnDisk,
    Prestarting,
    VolumeRooms,
    can,
    memory_bytes,
)
from atoll.engines.gvisor import RUNSC_VERSION, GvisorEngine
from atoll.engines.registry import DEFAULT_ENGINE, ENGINES, EngineKind, engine_kind

__all__ = [
    "DEFAULT_ENGINE",
    "ENGINES",
    "RUNSC_VERSION",
    "AdjustableLimits",
    "Bind",
    "DetachableFiles",
    "DiskBudget",
    "DiskGrowth",
    "Engine",
    "EngineKind",
    "GvisorEngine",
    "LazyMemory",
    "Machine",
    "MachineEndedError",
    "MachinePlan",
    "MachineStats",
    "MemoryReadings",
    "OwnDisk",
    "PrestartPlan",
    "PrestartedMachine",
    "Prestarting",
    "Uplink",
    "VolumeRoom",
    "VolumeRooms",
    "can",
    "engine_kind",
    "memory_bytes",
]
