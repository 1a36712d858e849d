"""Templates: named states that sandboxes start from, and the builds that made them."""

from __future__ import annotations

from typing import Literal

import msgspec

from atoll.types.images import RegistryLogin
from atoll.types.limits import Limits

BuildState = Literal["waiting", "building", "ready", "failed", "cancelled"]
DEFAULT_TAG = "default"


class RunStep(msgspec.Struct, frozen=True, kw_only=True, tag="run", tag_field="kind"):
    """Run a program inside: a shell line, or a list of arguments.

    Args:
        command: What to run. It must end with exit code 0.
        user: Who runs it; None is the template's user at that point.
        force: Run it even if the same step has been built before; all after it too.
    """

    command: str | list[str]
    user: str | None = None
    force: bool = False


class CopyStep(msgspec.Struct, frozen=True, kw_only=True, tag="copy", tag_field="kind"):
    """Copy files in from the build's context, or from an archive that was handed over.

    Args:
        sources: Paths in the context, with ``*``, ``?``, ``[…]`` and ``**``. A directory gives its content.
        target: Where to; relative to the working directory. With more than one source, or a ``/`` at its end, it is a
            directory.
        user: Who owns what is made, ``USER`` or ``USER:GROUP``; None is the template's user at that point.
        mode: Permission bits of all that is made; None keeps those of the sources.
        archive: Name of the archive that has them; None is the local context.
        force: Copy even if the same step has been built before; what comes after it is done anew too.
    """

    sources: list[str]
    target: str
    user: str | None = None
    mode: int | None = None
    archive: str | None = None
    force: bool = False


class EnvStep(msgspec.Struct, frozen=True, kw_only=True, tag="env", tag_field="kind"):
    """Set variables, for the steps that follow and for every sandbox of the template. ``$NAME`` in a value counts."""

    env: dict[str, str]
    force: bool = False


class WorkdirStep(msgspec.Struct, frozen=True, kw_only=True, tag="workdir", tag_field="kind"):
    """Change the directory that programs start in, which is made if missing."""

    path: str
    force: bool = False


class UserStep(msgspec.Struct, frozen=True, kw_only=True, tag="user", tag_field="kind"):
    """Change who runs programs."""

    user: str
    force: bool = False


Step = RunStep | CopyStep | EnvStep | WorkdirStep | UserStep


class Service(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program that goes on in every sandbox of a template. Where only the disk was kept, it is started again.

    Args:
        start: A shell line that goes on running.
        ready: A shell line that ends with 0 as soon as it is usable.
        user: Who runs both.
        cwd: Where.
    """

    start: str
    ready: str | None = None
    user: str
    cwd: str


class TemplateSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A template that somebody wants built.

    Args:
        image: The image to start from, like ``python:3.12``; None is ``base``.
        login: Credentials of the image's registry, which are kept nowhere. The image is then the team's alone.
        trusted_image: Whoever owns the home chose the image, so that the host's own login counts for a team, too.
        public_image: A stranger chose it: no registry on this machine or in its network is asked for it.
        template: The template to start from instead, ``NAME`` or ``NAME:TAG``.
        steps: What to do in it, in this order.
        prepare: Steps before those, which count as a part of what it starts from.
        start_command: A shell line that goes on running: in the snapshot, and so in every sandbox of the template.
        ready_command: A shell line that ends with 0 as soon as the start command's work is usable.
        limits: Limits of the build, and of every sandbox of the template that asks for none.
        force: Use nothing that was built before.
    """

    image: str | None = None
    login: RegistryLogin | None = None
    trusted_image: bool = False
    public_image: bool = False
    template: str | None = None
    steps: list[Step] = []
    prepare: list[Step] = []
    start_command: str | None = None
    ready_command: str | None = None
    limits: Limits = Limits()
    force: bool = False


class BuildInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One build of a template. Times are Unix seconds.

    ``snapshot_id`` is there when it is ready. ``step`` and ``reason`` say where and why a failed one failed:
    ``"base"`` is the image, ``"1"`` the first step, ``"finalize"`` the start and ready commands. ``sandbox_id`` is
    there when it was recorded of a sandbox rather than built.
    """

    build_id: str
    template_id: str
    state: BuildState
    created_at: float
    changed_at: float
    limits: Limits = Limits()
    tags: list[str] = []
    snapshot_id: str | None = None
    image: str | None = None
    sandbox_id: str | None = None
    step: str | None = None
    reason: str | None = None


class TemplateInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A template. ``tags`` has the build that each tag stands for and since when; ``builds`` the newest last."""

    template_id: str
    name: str | None
    team: str | None
    public: bool
    created_at: float
    changed_at: float
    tags: dict[str, TagInfo]
    builds: list[BuildInfo]

    def build(self, tag: str = DEFAULT_TAG) -> BuildInfo | None:
        """The build that a tag stands for; None without."""
        wanted = self.tags.get(tag)
        return next((one for one in self.builds if wanted and one.build_id == wanted.build_id), None)


class TagInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a tag stands for, and since when."""

    build_id: str
    created_at: float


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox of a template starts from: its snapshot, or an image where no template has that name."""

    template_id: str
    name: str | None
    team: str | None = None
    tag: str = DEFAULT_TAG
    build_id: str | None = None
    snapshot_id: str | None = None
    image: str | None = None
    limits: Limits = Limits()


class BuildLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a build's log. ``step`` is as in ``BuildInfo``; ``at`` Unix seconds."""

    at: float
    level: Literal["debug", "info", "warn", "error"]
    message: str
    step: str | None = None
