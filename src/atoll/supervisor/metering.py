"""Makes the part that measures a whole home."""

from __future__ import annotations

from atoll.supervisor.assembly import Machines, State, Steps, Tenants
from atoll.supervisor.monitors.metrics import Metrics
from atoll.supervisor.state.asks import AskTable


def make_metrics(state: State, machines: Machines, tenants: Tenants, steps: Steps, asks: AskTable) -> Metrics:
    """Make the part that tells the metrics."""
    return Metrics(
        inventory=state.inventory,
        history=steps.history,
        counters=state.counters,
        models=tenants.models,
        asks=asks,
        audit=state.audit,
        memory=machines.host_memory.look,
    )
