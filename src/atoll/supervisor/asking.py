"""Makes the parts that ask people about acts of sandboxes."""

from __future__ import annotations

from atoll.supervisor.assembly import Rooms, State
from atoll.supervisor.lifecycle.ask_channels import connect_channels
from atoll.supervisor.lifecycle.asks import Asks
from atoll.supervisor.lifecycle.limit_changes import LimitChanges
from atoll.supervisor.settings import Settings
from atoll.supervisor.state.ask_listeners import AskListeners


def make_asks(settings: Settings, rooms: Rooms, state: State, limits: LimitChanges) -> Asks:
    """Make the part that asks people, and have it hear of the requests that the edge holds."""
    asks = Asks(
        inventory=state.inventory,
        listeners=AskListeners(state.clock.boot_s),
        limits=limits,
        acts=state.acts,
        inspection=rooms.inspection,
        unix_s=state.clock.unix_s,
    )
    if rooms.inspection is not None:
        rooms.inspection.held.listener = asks
    connect_channels(state.paths, settings, asks, state.tasks)
    return asks
