"""Makes the parts that ask people about acts of sandboxes."""

from __future__ import annotations

from atoll.supervisor.assembly import Rooms, State
from atoll.supervisor.lifecycle.asks import Asks
from atoll.supervisor.lifecycle.limit_changes import LimitChanges
from atoll.supervisor.state.ask_listeners import AskListeners
from atoll.supervisor.state.asks import AskTable


def make_asks(rooms: Rooms, state: State, limits: LimitChanges) -> Asks:
    """Make the part that asks people, and have it hear of the requests that the edge holds."""
    asks = Asks(
        inventory=state.inventory,
        table=AskTable(),
        listeners=AskListeners(state.clock.boot_s),
        limits=limits,
        acts=state.acts,
        inspection=rooms.inspection,
        unix_s=state.clock.unix_s,
    )
    if rooms.inspection is not None:
        rooms.inspection.held.listener = asks
    return asks
