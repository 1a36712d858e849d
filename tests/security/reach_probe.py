"""Run inside a sandbox as root: try everything that could reach another machine. Prints what did, as JSON."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Callable

# Nothing is there that could answer, so this is how long each attempt takes that nobody refuses.
PATIENCE_S = 3
ANSWER_S = 30
libc = ctypes.CDLL(None, use_errno=True)
targets = json.loads(sys.argv[1])
found: list[str] = []


def attempt(name: str, work: Callable[..., bool], *arguments: object) -> None:
    with contextlib.suppress(OSError):
        if work(*arguments):
            found.append(name)


def talks(family: int, address: str, port: int) -> bool:
    """Whether anybody says anything there, or takes what we say: the relay takes a connection, then resets it."""
    with socket.socket(family) as probe:
        probe.settimeout(PATIENCE_S)
        probe.connect((address, port))
        probe.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return bool(probe.recv(1))


def datagram(family: int, address: str, port: int) -> bool:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.sendto(b"?", (address, port))
    return False


def checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ip_packet(source: bytes, destination: bytes, protocol: int, payload: bytes) -> bytes:
    head = struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 7, 0, 64, protocol, 0, source, destination
    )
    head = head[:10] + struct.pack(">H", checksum(head)) + head[12:]
    return head + payload


def echo() -> bytes:
    head = struct.pack(">BBHHH", 8, 0, 0, 7, 7)
    return head[:2] + struct.pack(">H", checksum(head)) + head[4:]


def raw_frames(source: str, destination: str) -> bool:
    """Send an echo, a datagram and a SYN as our own frames, then ask the nameserver; listen until it answers."""
    with socket.socket(17, socket.SOCK_RAW, socket.htons(0x0800)) as wire:
        wire.bind(("eth0", 0x0800))
        wire.settimeout(ANSWER_S)
        to, me = bytes.fromhex("02a7011e0001"), bytes.fromhex("02a7011e0002")
        there = socket.inet_aton(destination)
        udp = struct.pack(">HHHH", 999, 4000, 9, 0) + b"?"
        syn = struct.pack(">HHIIBBHHH", 999, 4000, 1, 0, 0x50, 2, 1000, 0, 0)
        for protocol, payload in ((1, echo()), (17, udp), (6, syn)):
            packet = ip_packet(socket.inet_aton(source), there, protocol, payload)
            with contextlib.suppress(OSError):
                wire.send(to + me + b"\x08\x00" + packet)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            # A question that is none is refused at once.
            asking.sendto(b"\x12\x34\x01\x00" + bytes(8), ("10.254.0.1", 53))
            while True:
                frame = wire.recv(2000)[14:]
                if frame[9] == 17 and frame[20:22] == b"\0\x35":
                    return False
                if frame[12:16] == there and frame[9] in (1, 17):
                    return True


def mounted(kind: str, options: bytes = b"") -> bool:
    os.makedirs("/m", exist_ok=True)
    if libc.mount(b"none", b"/m", kind.encode(), 0, options):
        raise OSError(ctypes.get_errno(), kind)
    try:
        names = set(os.listdir("/m"))
        return bool(names & set(targets["host_names"])) or any(mark_in(f"/m/{name}") for name in names)
    finally:
        libc.umount2(b"/m", 2)


def mark_in(path: str) -> bool:
    try:
        # Not of what waits for a writer, such as our own output.
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            return targets["mark"].encode() in file.read(4096)
    except OSError:
        return False


def device(kind: int, number: int) -> bool:
    path = f"/device-{number}"
    os.mknod(path, kind | 0o666, number)
    try:
        with open(path, "rb", buffering=0) as file:
            return bool(file.read(512))
    finally:
        os.unlink(path)


def unix(name: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(name)
        return True


def vsock() -> bool:
    with socket.socket(40, socket.SOCK_STREAM) as probe:
        probe.connect((2, 22))
        return True


def quiet(*argv: str) -> None:
    subprocess.run(argv, capture_output=True, check=False)


for address, port in targets["addresses"]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    attempt(f"tcp {address}:{port}", talks, family, address, port)
    attempt(f"udp {address}:{port}", datagram, family, address, port)
# As a name that means something else by the time that it is used.
for address, port in targets["addresses"]:
    with open("/etc/hosts", "a") as hosts:
        hosts.write(f"{address} rebound-{abs(hash(address))}.example\n")
    attempt(
        f"name for {address}",
        talks,
        socket.AF_INET6 if ":" in address else socket.AF_INET,
        f"rebound-{abs(hash(address))}.example",
        port,
    )
for path in targets["paths"]:
    attempt(f"file {path}", mark_in, path)
    for process in ("1", "self"):
        attempt(f"file {path} of process {process}", mark_in, f"/proc/{process}/root{path}")
        attempt(f"file {path} above {process}", mark_in, f"/proc/{process}/cwd/../../../../..{path}")
for path in targets["sockets"]:
    for name in (path, "\0" + path):
        attempt(f"unix {name!r}", unix, name)
attempt("disk device", device, stat.S_IFBLK, os.makedev(8, 0))
attempt("virtual disk device", device, stat.S_IFBLK, os.makedev(254, 0))
attempt("memory device", device, stat.S_IFCHR, os.makedev(1, 1))
attempt("kernel log device", device, stat.S_IFCHR, os.makedev(1, 11))
KINDS = "proc sysfs devtmpfs cgroup cgroup2 debugfs tracefs securityfs bpf mqueue"
for kind in KINDS.split():
    attempt(f"mount {kind}", mounted, kind)
attempt("mount overlay", mounted, "overlay", b"lowerdir=/etc:/proc/1/root")
attempt("vsock", vsock)
# Now as somebody else: other addresses, routes and hardware addresses.
for other in ("10.254.0.1", "10.254.0.3", targets["addresses"][0][0]):
    attempt(f"frames from {other}", raw_frames, other, "10.254.0.1")
    attempt(f"frames to {other}", raw_frames, "10.254.0.2", other)
quiet("ip", "addr", "add", "10.254.0.9/24", "dev", "eth0")
for address, port in targets["addresses"]:
    if ":" not in address:
        quiet("ip", "route", "add", f"{address}/32", "via", "10.254.0.1")
        attempt(f"routed {address}:{port}", talks, socket.AF_INET, address, port)
print(json.dumps(found))
