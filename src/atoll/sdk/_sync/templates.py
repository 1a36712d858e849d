# Made by scripts/unasync.py from sdk/_async/templates.py: do not edit.
"""The templates of a home."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from atoll.errors import AtollError, TemplateBuildError
from atoll.protocol import FinishRequest, PublishRequest, RecordRequest, TagsRequest, TemplateRequest
from atoll.sdk._sync.link import LONG_S, Link, ref
from atoll.sdk._sync.resolving import of_team, resolved
from atoll.sdk._sync.sandbox import Sandbox
from atoll.sdk._sync.snapshots import snapshot_ref
from atoll.sdk._context import Context
from atoll.sdk._io_sync import call, shielded
from atoll.types import (
    BuildInfo,
    BuildLine,
    Limits,
    Resolved,
    SnapshotInfo,
    TemplateInfo,
    TemplateSpec,
    check_kind,
)

if TYPE_CHECKING:
    from atoll.sdk._dockerfile import Dockerfile

BUILD_S = 3600.0
_END_S = 120.0
_Templates = list[TemplateInfo]


class Templates:
    """Named states that sandboxes start from: ``Sandbox.create(template="NAME:TAG")``.

    ``team`` is who asks: names are its own, and templates of others count only when they are public. None is whoever
    owns the home, who sees all, and whose names are those of no team.
    """

    @staticmethod
    def list(*, team: str | None = None) -> _Templates:
        """All templates, or a team's own, oldest first."""
        with contextlib.closing(Link()) as link:
            return link.call("GET", f"/v1/templates{of_team(team)}", list[TemplateInfo])

    @staticmethod
    def get(template: str, *, team: str | None = None) -> TemplateInfo:
        """One, by its id, its name, or ``TEAM/NAME``.

        Raises:
            TemplateNotFoundError: There is none that the team may see.
        """
        with contextlib.closing(Link()) as link:
            return link.call("GET", f"/v1/templates/{ref(template)}{of_team(team)}", TemplateInfo)

    @staticmethod
    def resolve(template: str, team: str | None = None) -> Resolved:
        """What a sandbox of ``NAME`` or ``NAME:TAG`` starts from.

        Raises:
            TemplateNotFoundError: There is no such template, or it has no such tag.
        """
        with contextlib.closing(Link()) as link:
            return resolved(link, template, team)

    @staticmethod
    def record(
        name: str | None,
        snapshot: str | SnapshotInfo | Sandbox,
        team: str | None = None,
        *,
        tags: Sequence[str] = (),
    ) -> Resolved:
        """Make a snapshot the newest build of a template of that name; it belongs to the template from then on.

        Args:
            name: Lower case letters, digits, ``-`` and ``_``; a tag may follow. None gives it no name.
            snapshot: Which; or a sandbox, of which one is taken for that, and none is left if this fails.
            team: Whose template.
            tags: What stands for that build from now on; none is ``default``.

        Raises:
            InvalidSpecError: The name or a tag is no good.
            SnapshotNotFoundError: There is no such snapshot, or it is another team's.
            InUseError: It belongs to a template already.
            StateError, NoSpaceError, QuotaError: The sandbox can have no snapshot.
        """
        if isinstance(snapshot, Sandbox):
            path = f"/v1/sandboxes/{ref(snapshot.id)}/template"
        else:
            path = f"/v1/snapshots/{ref(snapshot_ref(snapshot))}/template"
        body = RecordRequest(name=name, team=team, tags=[*tags])
        with contextlib.closing(Link()) as link:
            return link.call("POST", path, Resolved, body, timeout_s=LONG_S)

    @staticmethod
    def delete(template: str, *, team: str | None = None) -> None:
        """Forget a template: its builds are cancelled, its snapshots go as soon as no sandbox stands on them.

        Raises:
            TemplateNotFoundError: The team has none of that name.
        """
        with contextlib.closing(Link()) as link:
            link.delete(f"/v1/templates/{ref(template)}{of_team(team)}")

    @staticmethod
    def tag(template: str, tags: Sequence[str], *, team: str | None = None) -> BuildInfo:
        """Let more tags stand for the build that ``NAME:TAG`` stands for.

        Raises:
            TemplateNotFoundError: There is no such template, or it has no such tag.
            InvalidSpecError: A tag is no good, or there is none.
        """
        body = TagsRequest(tags=[*tags], team=team)
        with contextlib.closing(Link()) as link:
            return link.call("POST", f"/v1/templates/{ref(template)}/tag", BuildInfo, body)

    @staticmethod
    def untag(template: str, tags: Sequence[str], *, team: str | None = None) -> None:
        """Forget tags of a template; those that it has not are no error.

        Raises:
            TemplateNotFoundError: There is no such template.
            InvalidSpecError: ``default`` is among them, or there is none.
        """
        with contextlib.closing(Link()) as link:
            link.send(
                "POST", f"/v1/templates/{ref(template)}/untag", TagsRequest(tags=[*tags], team=team)
            )

    @staticmethod
    def publish(template: str, public: bool, *, team: str | None = None) -> TemplateInfo:
        """Let every team make sandboxes of a template, or only its own.

        Raises:
            TemplateNotFoundError: The team has none of that name.
        """
        body = PublishRequest(public=public, team=team)
        with contextlib.closing(Link()) as link:
            return link.call("POST", f"/v1/templates/{ref(template)}/publish", TemplateInfo, body)

    @staticmethod
    def from_dockerfile(text: str, args: Mapping[str, str] | None = None) -> Dockerfile:
        """What a Dockerfile says: ``.spec()`` is the template, ``.notes`` is what of it has no effect.

        Args:
            text: The file's content. It has one stage.
            args: Values for what it declares with ``ARG``.

        Raises:
            InvalidSpecError: It is no Dockerfile, or asks for what a template cannot be.
        """
        from atoll.sdk._dockerfile import Dockerfile

        return Dockerfile(text, args)

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

        Its steps run in a sandbox. Those that were built before, for the same team and on the same base, are not run
        again. A call that is cancelled or fails leaves nothing behind but the steps that were done, and its entry.

        Args:
            spec: What to build.
            name: Lower case letters, digits, ``-`` and ``_``; a tag may follow.
            team: Whose template.
            tags: What stands for the build then; none is ``default``.
            context: Directory of this host that copy steps take files from.
            public: Whether other teams may use it; None leaves it as it is.
            on_line: Called with each line of its log.
            timeout_s: Seconds for what it runs and copies; pulling and keeping states have bounds of their own.

        Raises:
            InvalidSpecError: The name, a tag or the spec is no good.
            TemplateBuildError: A step failed.
            TemplateNotFoundError: There is no template to start from.
            ImageNotFoundError, ImagePullError: There is no such image.
            QuotaError: As many builds of the team go on as may.
            NoSpaceError: The disk under the home is full.
        """
        check_kind("spec", spec, TemplateSpec)
        build = Templates.request(name, team=team, tags=tags, limits=spec.limits, public=public)
        return Templates.carry_out(
            build.build_id,
            spec,
            team=team,
            context=context,
            on_line=on_line,
            timeout_s=timeout_s,
        )

    @staticmethod
    def carry_out(
        build_id: str,
        spec: TemplateSpec,
        *,
        team: str | None = None,
        context: str | Path | None = None,
        archives: Mapping[str, Path] | None = None,
        on_begun: Callable[[BuildInfo], Any] | None = None,
        on_line: Callable[[BuildLine], Any] | None = None,
        timeout_s: float = BUILD_S,
    ) -> BuildInfo:
        """Do a build that waits; the other arguments and errors are those of ``build``.

        Args:
            build_id: Which.
            spec: What to build.
            team: Whose template.
            context: Directory of this host that copy steps take files from.
            archives: Tars, gzipped or not, that copy steps may name instead. Their content is not trusted.
            on_begun: Called when nobody else can begin it any more.
            on_line: Called with each line of its log.
            timeout_s: Seconds for what it runs and copies; pulling and keeping states have bounds of their own.

        Raises:
            StateError: It was begun before.
        """
        from atoll.sdk._sync.building import Builder, failure

        files = Context(None if context is None else Path(context), archives)
        with contextlib.closing(Link()) as link:
            path = f"/v1/builds/{ref(build_id)}"
            build, hold = link.hold("POST", f"{path}/begin", BuildInfo)
            builder = Builder(
                link, build, spec, team=team, context=files, on_line=on_line, timeout_s=timeout_s
            )
            try:
                if on_begun is not None:
                    call(on_begun, build)
                ready = FinishRequest(state="ready", snapshot_id=builder.run(), image=builder.image)
                build = link.call("POST", f"{path}/finish", BuildInfo, ready, timeout_s=LONG_S)
                if build.state != "ready":  # somebody else ended it: who cancelled it, or a new supervisor
                    raise TemplateBuildError(f"the build is {build.state}: {build.reason}")
                return build
            except BaseException as error:
                state: Literal["failed", "cancelled"] = (
                    "failed" if isinstance(error, Exception) else "cancelled"
                )
                over = FinishRequest(state=state, step=builder.step, reason=failure(error))
                with shielded(_END_S), contextlib.suppress(AtollError):
                    # whoever cannot be told finds the hold gone
                    link.call("POST", f"{path}/finish", BuildInfo, over, timeout_s=_END_S)
                raise
            finally:
                builder.close()
                hold.close()

    @staticmethod
    def request(
        name: str,
        *,
        team: str | None = None,
        tags: Sequence[str] = (),
        limits: Limits | None = None,
        public: bool | None = None,
    ) -> BuildInfo:
        """Have a build that waits to be begun, of the template of that name, made if missing.

        Args:
            name: Lower case letters, digits, ``-`` and ``_``; a tag may follow.
            team: Whose template.
            tags: What stands for the build when it is ready; none is ``default``.
            limits: Limits of the build and of the template's sandboxes.
            public: Whether other teams may use it; None leaves it as it is.

        Raises:
            InvalidSpecError: The name or a tag is no good.
        """
        body = TemplateRequest(
            name=name, team=team, tags=[*tags], limits=(limits or Limits()).check(), public=public
        )
        with contextlib.closing(Link()) as link:
            return link.call("POST", "/v1/templates", BuildInfo, body)

    @staticmethod
    def build_info(build_id: str) -> BuildInfo:
        """What is known of a build.

        Raises:
            TemplateNotFoundError: There is none of that id.
        """
        with contextlib.closing(Link()) as link:
            return link.call("GET", f"/v1/builds/{ref(build_id)}", BuildInfo)

    @staticmethod
    def cancel(build_id: str, *, reason: str = "it was cancelled") -> BuildInfo:
        """End a build that waits or goes on, whoever does it; one that has ended stays what it is.

        Raises:
            TemplateNotFoundError: There is none of that id.
        """
        body = FinishRequest(state="cancelled", reason=reason)
        with contextlib.closing(Link()) as link:
            path = f"/v1/builds/{ref(build_id)}/finish"
            return link.call("POST", path, BuildInfo, body, timeout_s=LONG_S, repeatable=True)

    @staticmethod
    def forget_steps() -> None:
        """Erase what earlier builds have kept of their steps, so that the next ones do all of them anew."""
        with contextlib.closing(Link()) as link:
            link.delete("/v1/steps")
