"""The engine on gVisor's ``runsc``."""

from atoll.engines.gvisor.engine import RUNSC_VERSION, GvisorEngine

__all__ = ["RUNSC_VERSION", "GvisorEngine"]
