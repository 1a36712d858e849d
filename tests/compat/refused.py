"""What does not work inside: a check for each row of the table in docs/guide/inside.md, right while the row is true."""

from tests.compat.program import Family, Program


def _fails(name: str, error: str, call: str, before: str = "") -> Program:
    """Python as root, whose ``call`` must fail with this error and no other."""
    lines = f"""sudo python3 - <<'END'
import ctypes, errno, fcntl, os, socket, time
libc = ctypes.CDLL(None, use_errno=True)
def ask(*arguments):
    if libc.syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")
{before}
try:
    {call}
except OSError as error:
    assert error.errno == errno.{error}, error
else:
    raise SystemExit("it works: take it out of the table")
END"""
    return Program(name, lines)


def _says(name: str, command: str, said: str, debian: str = "") -> Program:
    """A command that must fail, and say this."""
    lines = f"""if {{ {command}; }} >said 2>&1; then echo 'it works: take it out of the table'; exit 1; fi
grep -q {said!r} said || {{ cat said; exit 1; }}"""
    return Program(name, lines, debian=debian)


_DEVICE = """os.path.exists("/dev/disk") or os.mknod("/dev/disk", 0o600 | 0o060000, os.makedev(8, 0))"""
_FILE = """open("held", "w").close()"""
_LAYERS = "mkdir -p ol ou ow om; sudo umount -q om; touch ol/f"

# What the image has all that it takes to show.
SHORT = (
    _fails("raw devices", "ENXIO", 'os.open("/dev/disk", os.O_RDONLY)', _DEVICE),
    _fails("/dev/kvm", "ENOENT", 'os.open("/dev/kvm", os.O_RDWR)'),
    _fails("loop devices", "ENOENT", 'os.open("/dev/loop-control", os.O_RDWR)'),
    _says(
        "overlays on the disk",
        f'{_LAYERS}; sudo mount -t overlay o -o "lowerdir=$PWD/ol,upperdir=$PWD/ou,workdir=$PWD/ow" om; sudo rm om/f',
        "Operation not permitted",
    ),
    _says(
        "relative paths of overlays",
        f"{_LAYERS}; sudo mount -t overlay o -o lowerdir=ol,upperdir=ou,workdir=ow om",
        "wrong fs type",
    ),
    _fails("limits of namespaces", "ENOENT", 'os.open("/proc/sys/user/max_user_namespaces", os.O_WRONLY)'),
    _fails("kernel modules", "ENOSYS", 'ask(313, os.open("/etc/hostname", os.O_RDONLY), b"", 0)'),
    _fails("nftables", "EPROTONOSUPPORT", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)"),
    _fails("UDP-Lite", "EPROTONOSUPPORT", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136)"),
    _fails("SCTP", "EINVAL", "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)"),
    _fails("vsock", "EAFNOSUPPORT", "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)"),
    _fails("kernel crypto", "EAFNOSUPPORT", "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)"),
    _fails("dnotify", "EINVAL", 'fcntl.fcntl(os.open("/tmp", 0), fcntl.F_NOTIFY, fcntl.DN_CREATE)'),
    _fails(
        "file leases", "EINVAL", 'fcntl.fcntl(os.open("held", 0), fcntl.F_SETLEASE, fcntl.F_RDLCK)', _FILE
    ),
    _fails("fanotify", "ENOSYS", "ask(300, 0, 0)"),
    _fails("io_uring", "ENOSYS", "ask(425, 1, ctypes.create_string_buffer(120))"),
    _fails("userfaultfd", "ENOSYS", "ask(323, 0)"),
    _fails("landlock", "ENOSYS", "ask(444, 0, 0, 1)"),
    _fails("eBPF", "EINVAL", "ask(321, 0, 0, 0)"),
    _fails("perf events", "ENODEV", "ask(298, 0, 0, 0, 0, 0)"),
    _fails("the base of GS", "EINVAL", "ask(158, 0x1001, 4096)"),
    _fails("real-time scheduling", "EINVAL", "os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))"),
    _fails("the clock", "EPERM", "time.clock_settime(time.CLOCK_REALTIME, 0)"),
    _fails("file capabilities", "EOPNOTSUPP", 'os.setxattr("held", "security.capability", bytes(20))', _FILE),
    _fails("file attributes", "ENOTTY", 'fcntl.ioctl(os.open("held", 0), 0x80086601, bytes(8))', _FILE),
    _says("control groups", "sudo mkdir /sys/fs/cgroup/made", "annot create directory"),
    _says("swap", "head -c 1000000 /dev/zero >held; sudo swapon held", "."),
)

FAMILY = Family(
    "refused",
    (
        *SHORT,
        _says("ping to the outside", "ping -c 1 -W 3 1.1.1.1", "100% packet loss", debian="iputils-ping"),
        _says("systemd", "systemctl status", "has not been booted with systemd", debian="systemd"),
        _says("dockerd", "sudo timeout 60 dockerd", "Devices cgroup isn't mounted", debian="docker.io"),
        _says(
            "FUSE on the disk",
            "mkdir -p on; sshfs nowhere: on",
            "mounting over filesystem type",
            debian="sshfs",
        ),
        _says(
            "Firefox",
            "MOZ_HEADLESS=1 firefox-esr --screenshot made.png file:///etc/hostname",
            "set_segue_base error",
            debian="firefox-esr",
        ),
        _says("perf", "perf stat true", "sys_perf_event_open", debian="linux-perf"),
    ),
)
