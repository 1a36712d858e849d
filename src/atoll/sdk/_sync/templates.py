# Made by scripts/unasync.py from sdk/_async/templates.py: do not edit.
"""The templates of a home."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.protocol import FinishRequest, PublishRequest, RecordRequest, TagsRequest
from atoll.sdk._sync.api import LONG_S, Api, ref
from atoll.sdk._sync.builds import BUILD_S, carry_out, request_build
from atoll.sdk._sync.resolving import of_team, resolved
from atoll.sdk._sync.sandbox import Sandbox
from atoll.sdk._sync.snapshots import snapshot_ref
from atoll.sdk._steps import checked
from atoll.types import BuildInfo, BuildLine, PrunedSteps, Resolved, SnapshotInfo, TemplateInfo, TemplateSpec
from atoll.types.internal import texts_of

if TYPE_CHECKING:
    from atoll.sdk._dockerfile import Dockerfile

_Templates = list[TemplateInfo]


class Templates:
    """Builds, lists, tags and deletes templates: named states for ``Sandbox.create(Template("NAME:TAG"))``.

    ``team`` is the team that asks. Names are looked up among its own templates, and it sees others only if
    they are public. None means the owner of the home, who sees all templates and whose names belong to no
    team.
    """

    @staticmethod
    def list(*, team: str | None = None) -> _Templates:
        """List the templates of the home, or of one team, oldest first."""
        with contextlib.closing(Api()) as api:
            return api.call("GET", f"/v1/templates{of_team(team)}", list[TemplateInfo])

    @staticmethod
    def get(template: str, *, team: str | None = None) -> TemplateInfo:
        """Return the info of a template by its id, its name, or ``TEAM/NAME``.

        Raises:
            TemplateNotFoundError: The team sees no such template.
        """
        with contextlib.closing(Api()) as api:
            return api.call("GET", f"/v1/templates/{ref(template)}{of_team(team)}", TemplateInfo)

    @staticmethod
    def resolve(template: str, team: str | None = None) -> Resolved:
        """Return the snapshot or image from which a sandbox of ``NAME`` or ``NAME:TAG`` starts.

        Raises:
            TemplateNotFoundError: There is no such template, or the template has no such tag.
        """
        with contextlib.closing(Api()) as api:
            return resolved(api, template, team)

    @staticmethod
    def record(
        name: str | None,
        snapshot: str | SnapshotInfo | Sandbox,
        team: str | None = None,
        *,
        tags: Sequence[str] = (),
    ) -> Resolved:
        """Make a snapshot the newest build of the template of that name.

        From then on it belongs to the template.

        Args:
            name: Lower case letters, digits, ``-`` and ``_``; a tag may follow. None leaves the template
                unnamed.
            snapshot: The snapshot, or a sandbox to take one of. If this fails, that snapshot is removed.
            team: The team that owns the template.
            tags: Tags that mean this build from now on. An empty list means ``default``.

        Raises:
            InvalidSpecError: The name or a tag is invalid.
            SnapshotNotFoundError: There is no such snapshot, or another team owns it.
            InUseError: The snapshot belongs to a template already.
            StateError, NoSpaceError, QuotaError: No snapshot of the sandbox can be taken.
        """
        if isinstance(snapshot, Sandbox):
            path = f"/v1/sandboxes/{ref(snapshot.id)}/template"
        else:
            path = f"/v1/snapshots/{ref(snapshot_ref(snapshot))}/template"
        body = RecordRequest(name=name, team=team, tags=texts_of("tags", tags))
        with contextlib.closing(Api()) as api:
            return api.call("POST", path, Resolved, body, timeout_s=LONG_S)

    @staticmethod
    def delete(template: str, *, team: str | None = None) -> None:
        """Forget a template. Its builds are cancelled.

        Its snapshots go as soon as no sandbox depends on them.

        Raises:
            TemplateNotFoundError: The team has no template of that name.
        """
        with contextlib.closing(Api()) as api:
            api.delete(f"/v1/templates/{ref(template)}{of_team(team)}")

    @staticmethod
    def tag(template: str, tags: Sequence[str], *, team: str | None = None) -> BuildInfo:
        """Add tags to the build that ``NAME:TAG`` means.

        Raises:
            TemplateNotFoundError: There is no such template, or the template has no such tag.
            InvalidSpecError: A tag is invalid, or no tag is given.
        """
        body = TagsRequest(tags=texts_of("tags", tags), team=team)
        with contextlib.closing(Api()) as api:
            return api.call("POST", f"/v1/templates/{ref(template)}/tag", BuildInfo, body)

    @staticmethod
    def untag(template: str, tags: Sequence[str], *, team: str | None = None) -> None:
        """Remove tags from a template. Tags that it does not have are no error.

        Raises:
            TemplateNotFoundError: There is no such template.
            InvalidSpecError: ``default`` is among the tags, or no tag is given.
        """
        with contextlib.closing(Api()) as api:
            body = TagsRequest(tags=texts_of("tags", tags), team=team)
            api.send("POST", f"/v1/templates/{ref(template)}/untag", body)

    @staticmethod
    def publish(template: str, public: bool, *, team: str | None = None) -> TemplateInfo:
        """Let every team make sandboxes of a template, or only the team that owns it.

        Raises:
            TemplateNotFoundError: The team has no template of that name.
        """
        body = PublishRequest(public=public, team=team)
        with contextlib.closing(Api()) as api:
            return api.call("POST", f"/v1/templates/{ref(template)}/publish", TemplateInfo, body)

    @staticmethod
    def from_dockerfile(
        file: str | Path, args: Mapping[str, str] | None = None, target: str | None = None
    ) -> Dockerfile:
        """Read a Dockerfile. ``.spec()`` returns the template; ``.notes`` lists what has no effect.

        Args:
            file: The file's content, or its path. A ``NAME.dockerignore`` beside it stands for the context's.
            args: Values for what the file declares with ``ARG``.
            target: The stage to build, by its name or number; None is the last one.

        Raises:
            InvalidSpecError: There is no such file, it is not a Dockerfile, or it needs something that
                templates do not support.
        """
        from atoll.sdk._dockerfile import read_dockerfile

        return read_dockerfile(file, args, target)

    @staticmethod
    def build(
        spec: TemplateSpec,
        name: str,
        *,
        team: str | None = None,
        tags: Sequence[str] = (),
        context: str | Path | None = None,
        public: bool | None = None,
        on_line: Callable[[BuildLine], Any] | None = None,
        timeout_s: float = BUILD_S,
    ) -> BuildInfo:
        """Build a template, and return when sandboxes can be made of it.

        The steps run in a sandbox, on the server if one is chosen. Steps that were built before for the same
        team on the same base are not run again. A call that is cancelled or fails leaves only the completed
        steps and its entry.

        Args:
            spec: What to build.
            name: Lower case letters, digits, ``-`` and ``_``; a tag may follow.
            team: The team that owns the template.
            tags: Tags that mean the build when it is ready. An empty list means ``default``.
            context: Directory of this host that copy steps take files from.
            public: Whether other teams may use it; None leaves this as it is.
            on_line: Called with each line of its log.
            timeout_s: Seconds for running and copying. Pulling and storing states have their own bounds.

        Raises:
            InvalidSpecError: The name, a tag or the spec is invalid.
            TemplateBuildError: A step failed.
            TemplateNotFoundError: The template to start from does not exist.
            ImageNotFoundError, ImagePullError: There is no such image.
            QuotaError: The team has as many builds under way as it may.
            NoSpaceError: The disk under the home is full.
        """
        spec = checked(spec)
        build = request_build(name, team=team, tags=tags, limits=spec.limits, public=public)
        return carry_out(
            build.build_id,
            spec,
            team=team,
            context=context,
            on_line=on_line,
            timeout_s=timeout_s,
        )

    @staticmethod
    def build_info(build_id: str) -> BuildInfo:
        """Return the info of a build.

        Raises:
            TemplateNotFoundError: No build has that id.
        """
        with contextlib.closing(Api()) as api:
            return api.call("GET", f"/v1/builds/{ref(build_id)}", BuildInfo)

    @staticmethod
    def cancel(build_id: str, *, reason: str = "it was cancelled") -> BuildInfo:
        """End a build that waits or runs, no matter who runs it. A build that has ended does not change.

        Raises:
            TemplateNotFoundError: No build has that id.
        """
        body = FinishRequest(state="cancelled", reason=reason)
        with contextlib.closing(Api()) as api:
            path = f"/v1/builds/{ref(build_id)}/finish"
            return api.call("POST", path, BuildInfo, body, timeout_s=LONG_S, repeatable=True)

    @staticmethod
    def forget_steps() -> PrunedSteps:
        """Erase the stored steps of earlier builds, so that the next builds run all their steps."""
        with contextlib.closing(Api()) as api:
            return api.call("DELETE", "/v1/steps", PrunedSteps, timeout_s=LONG_S)
