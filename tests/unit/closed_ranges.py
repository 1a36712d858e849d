"""The ranges of addresses that are not public, and what is beside them."""

from __future__ import annotations

# The last address before and the first after each closed range; None where that is closed by another range.
BORDERS = {
    "0.0.0.0/8": (None, "1.0.0.0"),
    "10.0.0.0/8": ("9.255.255.255", "11.0.0.0"),
    "100.64.0.0/10": ("100.63.255.255", "100.128.0.0"),
    "127.0.0.0/8": ("126.255.255.255", "128.0.0.0"),
    "168.63.129.16/32": ("168.63.129.15", "168.63.129.17"),
    "169.254.0.0/16": ("169.253.255.255", "169.255.0.0"),
    "172.16.0.0/12": ("172.15.255.255", "172.32.0.0"),
    "192.0.0.0/24": ("191.255.255.255", "192.0.1.0"),
    "192.168.0.0/16": ("192.167.255.255", "192.169.0.0"),
    "198.18.0.0/15": ("198.17.255.255", "198.20.0.0"),
    "224.0.0.0/4": ("223.255.255.255", None),
    "240.0.0.0/4": (None, None),
    "::/96": (None, "::1:0:0"),
    "::ffff:0:0:0/96": ("::fffe:ffff:ffff:ffff", "::ffff:1:0:0"),
    "64:ff9b:1::/48": ("64:ff9b:0:ffff:ffff:ffff:ffff:ffff", "64:ff9b:2::"),
    "100::/64": ("ff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "100:0:0:1::"),
    "2001::/23": ("2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:200::"),
    "2002::/16": ("2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2003::"),
    "fc00::/7": ("fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fe00::"),
    "fe80::/10": ("fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None),
    "fec0::/10": (None, None),
    "ff00::/8": (None, None),
}
