"""The network of sandboxes: namespaces, the relay of TCP and DNS, and the egress policy."""

from atoll.network.addresses import (
    GATEWAY_ADDRESS,
    GATEWAY_HARDWARE,
    GUEST_ADDRESS,
    GUEST_HARDWARE,
    GUEST_INTERFACE,
    PREFIX_BITS,
)
from atoll.network.counts import Counts
from atoll.network.edge_spans import EdgeSpan, ModelSpan
from atoll.network.edge_talk import EdgeProgram
from atoll.network.flows import Flow
from atoll.network.held import HeldRequest
from atoll.network.host_settings import HostSettings
from atoll.network.inspection import Grant, Inspection, ModelRights
from atoll.network.link import Link
from atoll.network.links import SHORTAGES, Links
from atoll.network.model_talk import (
    Began,
    Billed,
    Holding,
    ModelListener,
    ModelMessage,
    ModelTalk,
    ModelUsage,
    Need,
    Returned,
)
from atoll.network.namespaces import cut, pins_of
from atoll.network.pace import Pace
from atoll.network.question import ask_about
from atoll.network.relay import Relay, RelayProgram
from atoll.network.relay_calls import cut_at
from atoll.network.shaping import can_shape
from atoll.network.uplink import OpenUplink

__all__ = [
    "GATEWAY_ADDRESS",
    "GATEWAY_HARDWARE",
    "GUEST_ADDRESS",
    "GUEST_HARDWARE",
    "GUEST_INTERFACE",
    "PREFIX_BITS",
    "SHORTAGES",
    "Began",
    "Billed",
    "Counts",
    "EdgeProgram",
    "EdgeSpan",
    "Flow",
    "Grant",
    "HeldRequest",
    "Holding",
    "HostSettings",
    "Inspection",
    "Link",
    "Links",
    "ModelListener",
    "ModelMessage",
    "ModelRights",
    "ModelSpan",
    "ModelTalk",
    "ModelUsage",
    "Need",
    "OpenUplink",
    "Pace",
    "Relay",
    "RelayProgram",
    "Returned",
    "ask_about",
    "can_shape",
    "cut",
    "cut_at",
    "pins_of",
]
