"""The network of sandboxes: namespaces, the relay of TCP and DNS, and the egress policy."""

from atoll.network.addresses import (
    GATEWAY_ADDRESS,
    GATEWAY_HARDWARE,
    GUEST_ADDRESS,
    GUEST_HARDWARE,
    GUEST_INTERFACE,
    PREFIX_BITS,
)
from atoll.network.egress import Outside
from atoll.network.flows import Flow
from atoll.network.inspection import EdgeProgram, Grant, Inspection
from atoll.network.link import Link
from atoll.network.links import SHORTAGES, Links
from atoll.network.namespaces import cut, pins_of
from atoll.network.pace import Pace
from atoll.network.question import ask_about
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
    "EdgeProgram",
    "Flow",
    "Grant",
    "Inspection",
    "Link",
    "Links",
    "OpenUplink",
    "Outside",
    "Pace",
    "ask_about",
    "can_shape",
    "cut",
    "pins_of",
]
