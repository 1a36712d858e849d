"""The addresses and ports of a link.

Every sandbox has the same, so a restored copy keeps its addresses.
"""

from __future__ import annotations

GUEST_ADDRESS = "10.254.0.2"
GATEWAY_ADDRESS = "10.254.0.1"
PREFIX_BITS = 30

# This is fixed too: a restored guest still has the gateway's hardware address in its neighbour table.
GUEST_HARDWARE = bytes.fromhex("02a7011e0002")
GATEWAY_HARDWARE = bytes.fromhex("02a7011e0001")

GUEST_INTERFACE = "eth0"
OUTER_INTERFACE = "guest"
INTERFACE_INDEX = 100

# These are below the ports that the kernel gives to dialled connections.
RELAY_PORT = 15001
DNS_PORT = 53
