"""Containers inside a sandbox. The daemons want the old hierarchy of control groups, which root may mount."""

from tests.compat.program import Family, Program

_IMAGE = """mkdir -p tiny/bin; cp /bin/busybox tiny/bin/sh; cp /bin/busybox tiny/bin/sleep
"""

FAMILY = Family(
    "containers",
    (
        Program(
            "docker",
            """docker() { sudo docker "$@"; }
# A container that is made after a wake sometimes fails, as docs/guide/inside.md tells.
test "$TURN" != 1 || test "$(docker run --rm --network=none tiny sh -c 'echo $((6 * 7))')" = 42
docker exec lives sh -c 'echo turn >>/turns'
test "$(docker exec lives sh -c 'while read -r turn; do echo $turn; done </turns' | wc -l)" = "$TURN" """,
            start=_IMAGE
            + """sudo setsid dockerd --iptables=false --ip6tables=false --bridge=none --storage-driver=vfs >log 2>&1 &
for try in {1..300}; do sudo docker version && break; sleep 0.2; done
tar -C tiny -c . | sudo docker import - tiny; sudo docker run -d --name lives --network=none tiny sleep 100000""",
            debian="docker.io busybox-static",
        ),
        Program(
            "podman",
            """podman() { sudo podman --storage-driver=vfs "$@"; }
test "$(podman run --rm --network=host --rootfs "$PWD/tiny" sh -c 'echo $((6 * 7))')" = 42""",
            start=_IMAGE,
            debian="podman busybox-static",
        ),
        Program(
            "bubblewrap",
            """test "$(bwrap --ro-bind / / --proc /proc --dev /dev --unshare-all sh -c 'echo $$')" -lt 5""",
            debian="bubblewrap",
        ),
        Program(
            "overlay-mount",
            """mkdir -p upper work; sudo umount -q merged || true; mkdir -p merged
sudo mount -t overlay overlay -o lowerdir=/etc,upperdir="$PWD/upper",workdir="$PWD/work" merged
sudo sh -c "echo $TURN >merged/turn"; test "$(cat upper/turn)" = "$TURN"; cmp merged/hostname /etc/hostname""",
        ),
    ),
    prepare="""mount -t tmpfs cgroup /sys/fs/cgroup
for kind in cpu cpuacct cpuset devices memory pids; do
    mkdir /sys/fs/cgroup/$kind; mount -t cgroup -o $kind $kind /sys/fs/cgroup/$kind
done""",
)
