"""Fakes of what a supervisor uses: links, disks, images and guest agents live in this process."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from atoll.errors import AgentError, AtollError, DeadlineError, ImageNotFoundError, QuotaError
from atoll.guest import AgentStats, Freed, GuestInit, LastWords
from atoll.host import TreeChecksums, TreeUse, remove_tree, tree_use
from atoll.images import Image
from atoll.network import Flow, OpenUplink
from atoll.types import EgressDecision, ImageAccess, ImageInfo, Policy, Progress

DIGEST = "sha256-" + "0" * 64


class FakeGuest:
    """Tells nobody anything unless the test does."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self.told: Callable[[EgressDecision], None] | None = None
        self.unplug: Callable[[str], None] | None = None
        self.came: Callable[[str], None] | None = None
        self.is_fresh = False

    async def names(self) -> dict[str, str]:
        return self.known

    async def know(self, names: Mapping[str, str]) -> None:
        self.known = dict(names)

    def follow(self, told: Callable[[EgressDecision], None], unplug: Callable[[str], None]) -> None:
        self.told, self.unplug = told, unplug

    @property
    def is_watched(self) -> bool:
        return self.came is not None

    def watch(self, came: Callable[[str], None]) -> None:
        self.came = came

    def come(self) -> None:
        """Have data come."""
        assert self.came is not None
        came, self.came = self.came, None
        came("chat.example:443")


class FakeRelay:
    """Knows nothing that was not told."""

    async def hear(self) -> None:
        pass


class FakeLink:
    def __init__(self, links: FakeLinks, link_id: str) -> None:
        self.link_id = link_id
        self.netns = Path("/proc/self/ns/net")
        self.policy = "internet"
        self.ceiling: Policy | None = None
        self.calls: list[str] = []
        self.received = 0
        self.asked_s: float | None = None
        self.is_open = True
        self.was_cut = self.was_carried = False
        self.fail_cut = False
        self.is_held = False
        self.guest = FakeGuest()
        self._links = links

    def set_policy(
        self, policy: str, registries: Iterable[str] = (), *, ceiling: Policy | None = None
    ) -> None:
        self.policy, self.ceiling = policy, ceiling

    async def set_rate(self, mib_s: float | None) -> None:
        self.rate_mib_s = mib_s

    async def prepare(self) -> None:
        self.calls.append("prepare")

    async def open_uplink(self) -> OpenUplink:
        self.calls.append("open_uplink")
        return OpenUplink(socket.socket(), 1500, 65536)

    def cut(self) -> None:
        self.calls.append("cut")
        if self.fail_cut:
            raise OSError("the kernel refused it")
        self.was_cut = True

    async def mend(self) -> None:
        self.calls.append("mend")
        self.was_cut = False

    def hold(self) -> None:
        self.calls.append("hold")

    def release(self) -> None:
        self.calls.append("release")
        self.guest.came = None

    async def holds_nothing(self, known: list[Flow]) -> bool:
        return not self.is_held

    def end_dialled(self) -> None:
        self.calls.append("end_dialled")

    def traffic(self) -> tuple[int, int]:
        return self.received, 0

    def payload_bytes(self) -> int:
        return self.received

    def received_payload_bytes(self) -> int:
        return self.received

    def unanswered_s(self, *, by_guest: bool = True) -> float | None:
        return self.asked_s if by_guest else None

    async def flows(self) -> list[Flow]:
        return [Flow(1, "192.0.2.1", 2)]

    async def reset_connections(self, gone: list[Flow]) -> None:
        self.calls.append(f"reset {len(gone)}")

    async def aclose(self) -> None:
        self.is_open = False
        self._links.open.pop(self.link_id, None)


class FakeLinks:
    """What the host has of links: it outlives a supervisor."""

    def __init__(self) -> None:
        self.open: dict[str, FakeLink] = {}
        self.carried: set[str] = set()
        self.stays: bool | None = None
        self._number = 0

    async def start(self) -> None:
        pass

    async def take(self) -> FakeLink:
        self._number += 1
        link = FakeLink(self, f"link{self._number}")
        self.open[link.link_id] = link
        return link

    async def adopt(self, link_id: str) -> FakeLink | None:
        return self.open.get(link_id)

    async def carries(self, link_id: str) -> bool:
        return link_id in self.carried

    def sweep(self, keep: list[str]) -> list[str]:
        swept = sorted(set(self.open) - set(keep))
        for link_id in swept:
            del self.open[link_id]
        return swept

    async def aclose(self, *, stay: bool = False) -> None:
        self.stays = stay


class FakeCopy:
    def __init__(self, layers: FakeLayers, source: Path, target: Path) -> None:
        self._layers, self._source, self._target = layers, source, target

    async def first(self) -> None:
        self._layers.early_copies += 1
        self._target.mkdir(parents=True)

    async def last(self) -> str:
        shutil.copytree(self._source, self._target, dirs_exist_ok=True)
        return self._target.name

    async def abandon(self) -> None:
        remove_tree(self._target)


class FakeImageRoots:
    """Roots that are plain directories and are never mounted."""

    def mount(self, image: Path, targets: Iterable[str], disk: Path) -> Path:
        (disk / "root").mkdir(exist_ok=True)
        return disk / "root"


class FakeLayers:
    """Layers that are plain directories and are never mounted."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.checksums = TreeChecksums(directory)
        self.fail_next_branch = False
        self.fail_next_freeze = False
        self.in_use: set[Path] = set()
        self.frozen: set[Path] = set()
        # What settling the links of a disk does, once.
        self.unsettled: dict[Path, Callable[[], None]] = {}
        self.changed_bytes = 11
        self.has_much = False
        self.early_copies = 0

    def mount(self, image: tuple[Path, ...], stack: tuple[str, ...], disk: Path) -> Path:
        assert all((self.directory / layer).is_dir() for layer in stack), "a layer is gone"
        assert disk not in self.in_use or disk in self.frozen, "its top directory is in use"
        (disk / "upper").mkdir(parents=True, exist_ok=True)
        return disk / "upper"

    def unmount(self, disk: Path) -> None:
        self.settle(disk)

    def settle(self, disk: Path) -> None:
        if settle := self.unsettled.pop(disk, None):
            settle()

    def leave(self, disk: Path) -> Callable[[], None]:
        self.settle(disk)
        assert disk not in self.in_use
        self.in_use.add(disk)
        return lambda: self.in_use.remove(disk)

    def freeze(self, disk: Path) -> str:
        if self.fail_next_freeze:
            self.fail_next_freeze = False
            raise AtollError("it does not freeze")
        layer_id = f"frozen{len(self.ids())}"
        self.frozen.add(disk)
        os.rename(disk / "upper", self.directory / layer_id)
        return layer_id

    def undo_unknown_freeze(self, disk: Path, stack: tuple[str, ...]) -> tuple[str, ...]:
        if (note := self.noted_freeze(disk)) not in (None, *stack):
            raise OSError(f"the disk does not let {note} be undone")
        return stack

    def noted_freeze(self, disk: Path) -> str | None:
        note = disk / "frozen"
        return note.read_text() if note.exists() else None

    def branch(self, disk: Path, stack: tuple[str, ...]) -> tuple[str, ...]:
        if self.fail_next_branch:
            self.fail_next_branch = False
            raise AtollError("no disk for you")
        (disk / "upper").mkdir(parents=True)
        return stack

    def forget_freeze(self, disk: Path) -> None:
        pass

    def copy(self, disk: Path, layer_id: str) -> FakeCopy:
        return FakeCopy(self, disk / "upper", self.directory / layer_id)

    def size_bytes(self, layer_id: str) -> int:
        return 7

    def sizes_changed(self, disk: Path) -> int:
        return self.changed_bytes

    def use(self, disk: Path) -> TreeUse:
        return tree_use(disk / "upper")

    def remove_unfinished(self) -> list[str]:
        return []

    def ids(self) -> list[str]:
        return sorted(entry.name for entry in self.directory.glob("[!.]*"))

    def path(self, layer_id: str) -> Path:
        return self.directory / layer_id

    def outgrows(self, disk: Path, most_bytes: int) -> bool:
        return self.has_much


class FakeImages:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.have = True
        self.builds = 0
        self.may_build: asyncio.Event | None = None
        self.unlocked = asyncio.Event()
        self.unlocked.set()
        self.pulled: dict[str, list[Image]] = {}
        self.needs_bytes = 0
        # The files of ``base`` once more, as the package that contains it has them.
        self.package: Path | None = None

    def pull_for(self, team: str, digest: str, *layers: str) -> None:
        """Let a team have had an image pulled, each of whose layers has a MiB."""
        lowers = tuple(self._directory / "layers" / layer for layer in layers)
        for lower in lowers:
            lower.mkdir(parents=True, exist_ok=True)
            (lower / "file").write_bytes(b"x" * (1 << 20))
        image = self.get(digest)
        assert image
        info = msgspec.structs.replace(image.info, digest=digest, pulled_for=team)
        self.pulled.setdefault(team, []).append(Image(info=info, lowers=lowers))

    def get(self, name: str) -> Image | None:
        if not self.have or (name != "base" and not name.startswith("sha256-")):
            return None
        digest = DIGEST if name == "base" else name
        info = ImageInfo(
            name="base",
            digest=digest,
            size_bytes=1,
            created_at=1.0,
            user="user",
            cwd="/home/user",
            env={"LANG": "C"},
        )
        return Image(info=info, lowers=(self._directory / digest / "rootfs",))

    def list(self) -> list[ImageInfo]:
        image = self.get("base")
        return [image.info] if image else []

    def found(self, name: str, access: ImageAccess) -> Image | None:
        return self.get(name)

    async def forget_team(self, team: str) -> None:
        pass

    @contextlib.asynccontextmanager
    async def unpacked_again(self, digest: str, progress: object) -> AsyncIterator[Path | None]:
        yield self.package

    def pulled_for(self, team: str) -> builtins.list[Image]:
        return self.pulled.get(team, [])

    def give_up(self, digest: str) -> bool:
        for team, images in self.pulled.items():
            self.pulled[team] = [image for image in images if image.info.digest != digest]
        return True

    async def ensure(
        self,
        name: str,
        progress: Callable[[Progress], None],
        *,
        newest: bool = False,
        access: ImageAccess | None = None,
        most_bytes: int | None = None,
    ) -> Image:
        if name != "base":
            raise ImageNotFoundError(f"no image {name}", hint="use base")
        if most_bytes is not None and self.needs_bytes > most_bytes:
            raise QuotaError(f"image {name} needs {self.needs_bytes} bytes")
        self.builds += 1
        progress(Progress(step="building"))
        if self.may_build is not None:
            await self.may_build.wait()
        self.have = True
        image = self.get(name)
        assert image
        return image

    def unneeded(self, in_use: set[str]) -> builtins.list[Path]:
        return []

    def is_only_name(self, name: str) -> bool:
        return True

    async def remove(self, name: str, check: Callable[[], None], take: Callable[[Path], object]) -> None:
        await self.unlocked.wait()
        check()
        self.have = False
        take(self._directory / DIGEST)


class FakeAgents:
    def __init__(self) -> None:
        self.inits: list[GuestInit] = []
        self.fail_after: int | None = None
        self.deaf = False
        self.flushed = 0
        self.waiting = 0
        self.wake_at = 0.0
        self.farewells = 0
        self.hooks = 0
        self.hooks_run = 0
        self.hooks_hang = False
        self.is_mute = False
        self.freed = 0
        self.free_failure: AtollError | None = None
        self.is_silent = False
        self.asking_fails: OSError | None = None

    async def ready(self, link: FakeLink) -> None:
        await asyncio.sleep(0)
        if self.deaf:
            raise TimeoutError

    async def answers(self, link: FakeLink) -> int:
        if self.asking_fails is not None:
            raise self.asking_fails
        if self.is_silent:
            raise DeadlineError("it does not answer")
        return 0

    async def init(self, link: FakeLink, wanted: GuestInit) -> None:
        if self.fail_after is not None:
            self.fail_after -= 1
            if self.fail_after < 0:
                raise AtollError("the agent refuses")
        self.inits.append(wanted)

    async def first(self, link: FakeLink, wanted: GuestInit) -> None:
        await self.ready(link)
        await self.init(link, wanted)

    async def flush(self, link: FakeLink) -> None:
        self.flushed += 1
        link.received += 1000

    async def before_suspend(self, link: FakeLink, *, hooks: bool = False) -> tuple[LastWords, int]:
        self.farewells += 1
        if hooks:
            self.hooks_run += self.hooks
            link.received += 100_000  # they are busy
            if self.hooks_hang:
                raise AgentError("its hooks hang")
        if self.is_mute:
            raise AgentError("it does not answer")
        link.received += 300
        return LastWords(hooks=self.hooks, wake_at=self.wake_at if hooks or not self.hooks else 0.0), 300

    async def free_memory(self, link: FakeLink, within_s: float) -> Freed:
        if self.free_failure is not None:
            raise self.free_failure
        self.freed += 1
        return Freed(killed=True, name="hog", held_bytes=300 << 20)

    async def warm(self, link: FakeLink, user: str) -> None:
        pass

    async def stats(self, link: FakeLink) -> AgentStats:
        if self.waiting < 0:
            raise AgentError("it does not answer")
        return AgentStats(processes=3, waiting=self.waiting, wake_at=self.wake_at)
