"""Makes the part that settles with the edge what models cost."""

from __future__ import annotations

from atoll.network import ModelTalk
from atoll.supervisor.assembly import Rooms, State, Tenants
from atoll.supervisor.lifecycle.model_billing import ModelBilling


def make_model_billing(rooms: Rooms, state: State, tenants: Tenants) -> ModelBilling:
    """Make the part that answers the edge about models, and have it hear of them. Without an edge it hears nothing."""
    talk = ModelTalk() if rooms.inspection is None else rooms.inspection.models
    billing = talk.listener = ModelBilling(
        ledger=tenants.model_ledger,
        talk=talk,
        inventory=state.inventory,
        acts=state.acts,
        counters=state.counters,
    )
    models = tenants.models
    models.follow(lambda: billing.tell_limits(models.budgets_of(None)))
    return billing
