"""The way in and out of sandboxes: namespaces, the relay of TCP and DNS, and what may be reached."""

from atoll.network.addresses import GATEWAY_ADDRESS, GUEST_ADDRESS
from atoll.network.decide import REFUSED, Policy, Refusal, decide
from atoll.network.flows import Flow
from atoll.network.link import Link
from atoll.network.links import SHORTAGES, Links
from atoll.network.shaping import can_shape

__all__ = [
    "GATEWAY_ADDRESS",
    "GUEST_ADDRESS",
    "REFUSED",
    "SHORTAGES",
    "Flow",
    "Link",
    "Links",
    "Policy",
    "Refusal",
    "can_shape",
    "decide",
]
