"""Tries the kernel features that a sandbox needs, in its own namespaces, which end with it.

Run as a script, isolated (`python -I -S`), so that it is quick and has no side effects. Arguments: `user` or
`root`, and a directory with empty `lower`, `upper`, `work` and `at` in it. It prints a line for each step:
its name and `ok`, or the reason of the failure. Steps that depend on a failed one are not tried.
"""

import ctypes
import os
import socket
import struct
import sys

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_MS_REC_PRIVATE = 16384 | 1 << 18

_NETLINK_NETFILTER = 12
_NFTABLES = 10
_REQUEST_ACK_CREATE = 1 | 4 | 0x400
_NEW_DISCIPLINE = 36
_IPV4 = 2

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _make_namespaces(kind: str) -> None:
    user, group = os.geteuid(), os.getegid()
    namespaces = _CLONE_NEWNS | _CLONE_NEWNET
    if kind == "user":
        _check(_libc.unshare(_CLONE_NEWUSER | namespaces), "unshare")
        for file, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{file}", "w") as table:
                table.write(text)
    else:
        _check(_libc.unshare(namespaces), "unshare")
    _check(_libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC_PRIVATE), None), "mount")


def _use_overlay(kind: str, place: str) -> None:
    with open(f"{place}/lower/file", "w") as file:
        file.write("x")
    options = f"lowerdir={place}/lower,upperdir={place}/upper,workdir={place}/work"
    options += ",userxattr" if kind == "user" else ",redirect_dir=on,index=off,metacopy=off"
    mounted = _libc.mount(
        b"overlay", os.fsencode(f"{place}/at"), b"overlay", ctypes.c_ulong(0), os.fsencode(options)
    )
    _check(mounted, "mount")
    os.chmod(f"{place}/at/file", 0o600)
    os.unlink(f"{place}/at/file")


def _use_nftables() -> None:
    """Make a table and a chain that changes addresses, as the network of a sandbox needs them."""
    table = _attribute(1, b"atoll\0")
    hook = _attribute(1, struct.pack(">I", 0)) + _attribute(2, struct.pack(">i", -100))
    chain = _attribute(1, b"atoll\0") + _attribute(3, b"trial\0") + _attribute(4 | 0x8000, hook)
    chain += _attribute(7, b"nat\0")
    batch = _message(0x10, 1, 0, 0, _NFTABLES, b"")
    batch += _message(_NFTABLES << 8, _REQUEST_ACK_CREATE, 1, _IPV4, 0, table)
    batch += _message(_NFTABLES << 8 | 3, _REQUEST_ACK_CREATE, 2, _IPV4, 0, chain)
    batch += _message(0x11, 1, 3, 0, _NFTABLES, b"")
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as netlink:
        netlink.settimeout(5)
        netlink.bind((0, 0))
        netlink.send(batch)
        confirmed = 0
        while confirmed < 2:
            data = netlink.recv(65536)
            while len(data) >= 20:
                length, _, _, _, _, failure = struct.unpack_from("=IHHIIi", data)
                if failure:
                    raise OSError(-failure, os.strerror(-failure), "nftables")
                confirmed += 1
                data = data[(length + 3) & ~3 :]


def _use_shaping() -> None:
    """Limit the rate of an interface with a token bucket."""
    rate = struct.pack("=BBHhHI", 0, 1, 0, 0, 0, 1 << 20)
    parameters = rate + bytes(12) + struct.pack("=III", 1 << 20, 0, 0)
    options = _attribute(1, parameters) + _attribute(6, struct.pack("=I", 1 << 17))
    body = struct.pack("=BxxxiIII", 0, 1, 0x10000, 0xFFFFFFFF, 0)
    body += _attribute(1, b"tbf\0") + _attribute(2 | 0x8000, options)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        netlink.settimeout(5)
        netlink.send(struct.pack("=IHHII", len(body) + 16, _NEW_DISCIPLINE, _REQUEST_ACK_CREATE, 1, 0) + body)
        failure = struct.unpack_from("=i", netlink.recv(65536), 16)[0]
        if failure:
            raise OSError(-failure, os.strerror(-failure), "tbf")


def _attribute(kind: int, value: bytes) -> bytes:
    length = len(value) + 4
    return struct.pack("=HH", length, kind) + value + bytes(-length % 4)


def _message(kind: int, flags: int, number: int, family: int, resource: int, content: bytes) -> bytes:
    body = struct.pack(">BBH", family, 0, resource) + content
    return struct.pack("=IHHII", len(body) + 16, kind, flags, number, 0) + body


def _main(kind: str, place: str) -> None:
    failed = _try("namespaces", lambda: _make_namespaces(kind))
    if not failed:
        _try("overlay", lambda: _use_overlay(kind, place))
        _try("nftables", _use_nftables)
        _try("shaping", _use_shaping)


def _try(name: str, step) -> bool:  # type: ignore[no-untyped-def]  # noqa: ANN001
    try:
        step()
    except OSError as error:
        sys.stdout.write(f"{name} {error.strerror or error}\n")
        return True
    sys.stdout.write(f"{name} ok\n")
    return False


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2])
