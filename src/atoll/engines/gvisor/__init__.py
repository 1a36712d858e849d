"""The gVisor engine, which runs ``runsc``."""

from atoll.engines.gvisor.engine import RUNSC_VERSION, GvisorEngine

__all__ = ["RUNSC_VERSION", "GvisorEngine"]
