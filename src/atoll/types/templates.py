"""Templates: named states that sandboxes start from, and the builds that made them."""

from __future__ import annotations

from typing import Literal

import msgspec

from atoll.types.brief import brief
from atoll.types.images import RegistryLogin
from atoll.types.limits import Limits

BuildState = Literal["waiting", "building", "ready", "failed", "cancelled"]
DEFAULT_TAG = "default"


class Template(msgspec.Struct, frozen=True):
    """A template to start a sandbox from, see ``Templates``.

    Args:
        name: ``NAME`` or ``NAME:TAG``, of the sandbox's team; a public template of another is ``TEAM/NAME``.
    """

    name: str


class RunStep(
    msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True, tag="run", tag_field="kind"
):
    """Runs a program inside: a shell line, or a list of arguments.

    Args:
        command: The program to run. It must end with exit code 0.
        user: Who runs it. None is the template's user at that point.
        force: Run it, and every later step, even if the same step has been built before.
    """

    command: str | list[str]
    user: str | None = None
    force: bool = False


class CopyStep(
    msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True, tag="copy", tag_field="kind"
):
    """Copies files in from the build's context, an uploaded archive, or another stage of the build.

    Args:
        sources: Paths in the context, or in the stage from its root, with ``*``, ``?``, ``[…]`` and ``**``.
            For a directory its content is copied.
        target: The destination, relative to the working directory. It is a directory if it ends with ``/`` or
            there is more than one source.
        user: The owner of the copies, ``USER`` or ``USER:GROUP``. None is the template's user at that point;
            files of a stage keep their owner, by number.
        mode: Permission bits of all copies; None keeps those of the sources.
        archive: Name of the archive with the sources; None is the local context.
        stage: Name of the stage that the sources are in.
        force: Run it, and every later step, even if the same step has been built before.
    """

    sources: list[str]
    target: str
    user: str | None = None
    mode: int | None = None
    archive: str | None = None
    stage: str | None = None
    force: bool = False


class EnvStep(
    msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True, tag="env", tag_field="kind"
):
    """Sets variables for the steps that follow and for every sandbox of the template.

    ``$NAME`` in a value is expanded.
    """

    env: dict[str, str]
    force: bool = False


class WorkdirStep(
    msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True, tag="workdir", tag_field="kind"
):
    """Changes the directory that programs start in, and makes it if it is missing."""

    path: str
    force: bool = False


class UserStep(
    msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True, tag="user", tag_field="kind"
):
    """Changes the user that runs programs."""

    user: str
    force: bool = False


Step = RunStep | CopyStep | EnvStep | WorkdirStep | UserStep


class StartCommand(
    msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """The start command of a template: a program that keeps running in every sandbox of it.

    If only the disk was kept, it is started again.

    Args:
        start: A shell line that keeps running.
        ready: A shell line that exits with 0 once the program is usable.
        user: Who runs both.
        cwd: Where both run.
    """

    start: str
    ready: str | None = None
    user: str
    cwd: str


class StageSpec(
    msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """A stage of a build: a state of its own, whose files copy steps of the template may take.

    Args:
        image: The image to start from; None is ``base``.
        trusted_image: As in ``TemplateSpec``.
        public_image: As in ``TemplateSpec``.
        steps: The steps to run, in this order.
    """

    image: str | None = None
    trusted_image: bool = False
    public_image: bool = False
    steps: list[Step] = []


class TemplateSpec(
    msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """A request to build a template.

    Args:
        image: The image to start from, like ``python:3.12``; None is ``base``.
        login: Credentials of the image's registry, stored nowhere. With them the image belongs to the team
            alone.
        trusted_image: The owner of the home chose the image, so a team's build may use the host's own login
            too.
        public_image: A stranger chose the image, so no registry on this machine or its network is asked for
            it.
        template: The template to start from instead, ``NAME`` or ``NAME:TAG``.
        steps: The steps to run, in this order.
        stages: The stages that copy steps name, by their names. A stage that no step needs is not built.
        ignore: Patterns of files in the context that copy steps leave out, like the lines of a
            ``.dockerignore``. None reads the ``.dockerignore`` of the context.
        prepare: Steps that run before ``steps`` and count as part of what the template starts from.
        start_command: A shell line that keeps running in the snapshot, and so in every sandbox of the
            template.
        ready_command: A shell line that exits with 0 once the start command's program is usable.
        limits: Limits of the build, and of every sandbox of the template that asks for none.
        force: Use nothing that was built before.
    """

    image: str | None = None
    login: RegistryLogin | None = None
    trusted_image: bool = False
    public_image: bool = False
    template: str | None = None
    steps: list[Step] = []
    stages: dict[str, StageSpec] = {}
    ignore: list[str] | None = None
    prepare: list[Step] = []
    start_command: str | None = None
    ready_command: str | None = None
    limits: Limits = Limits()
    force: bool = False


class BuildInfo(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """One build of a template. Times are Unix seconds.

    ``snapshot_id`` is set when the build is ready. ``step`` and ``reason`` say where and why it failed:
    ``"base"`` is the image, ``"1"`` the first step, ``"finalize"`` the start and ready commands.
    ``sandbox_id`` is set if the template was recorded from a sandbox and not built.
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
    """A template.

    ``tags`` has the build of each tag and when it was set; ``builds`` are in order, the newest last.
    """

    template_id: str
    name: str | None
    team: str | None
    public: bool
    created_at: float
    changed_at: float
    tags: dict[str, TagInfo]
    builds: list[BuildInfo]

    def __repr__(self) -> str:
        return brief(self, "template_id", "name", "team")

    def build(self, tag: str = DEFAULT_TAG) -> BuildInfo | None:
        """Return the build of a tag; None if there is no such tag."""
        wanted = self.tags.get(tag)
        return next((one for one in self.builds if wanted and one.build_id == wanted.build_id), None)


class PrunedSteps(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """The result of erasing the stored steps of builds.

    Args:
        steps: How many steps were forgotten.
        snapshots: How many of their states were erased.
        freed_bytes: Disk space of these states, without the parts that others still share.
        kept: Why other states of builds stay, one line each.
    """

    steps: int
    snapshots: int
    freed_bytes: int
    kept: list[str] = []


class TagInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The build of a tag, and when it was set."""

    build_id: str
    created_at: float


class Resolved(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """The start of a sandbox of a template: its snapshot, or an image if no template has that name."""

    template_id: str
    name: str | None
    team: str | None = None
    tag: str = DEFAULT_TAG
    build_id: str | None = None
    snapshot_id: str | None = None
    image: str | None = None
    limits: Limits = Limits()


class BuildLine(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """A line of a build's log. ``step`` is as in ``BuildInfo``; ``at`` is in Unix seconds."""

    at: float
    level: Literal["debug", "info", "warn", "error"]
    message: str
    step: str | None = None
