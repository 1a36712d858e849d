# Made by scripts/unasync.py from sdk/_async/builds.py: do not edit.
"""Requests builds of templates, and carries them out here or on a server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from atoll.errors import AtollError, TemplateBuildError
from atoll.protocol import FinishRequest, TemplateRequest
from atoll.sdk._sync.api import LONG_S, Api, ref
from atoll.sdk._sync.places import There
from atoll.sdk._context import Context
from atoll.sdk._io_sync import call, shielded
from atoll.sdk._steps import checked
from atoll.types import BuildInfo, BuildLine, Limits, TemplateSpec
from atoll.types.internal import texts_of

if TYPE_CHECKING:
    from atoll.sdk._sync.building import Builder

BUILD_S = 3600.0
_END_S = 120.0


def request_build(
    name: str,
    *,
    team: str | None = None,
    tags: Sequence[str] = (),
    limits: Limits | None = None,
    public: bool | None = None,
) -> BuildInfo:
    """Make a build that waits for its start. The template of that name is made if it is missing.

    Args:
        name: Lower case letters, digits, ``-`` and ``_``; a tag may follow.
        team: The team that owns the template.
        tags: Tags that mean the build when it is ready. An empty list means ``default``.
        limits: Limits of the build and of the template's sandboxes.
        public: Whether other teams may use it; None leaves this as it is.

    Raises:
        InvalidSpecError: The name or a tag is invalid.
    """
    body = TemplateRequest(
        name=name,
        team=team,
        tags=texts_of("tags", tags),
        limits=(limits or Limits()).check(),
        public=public,
    )
    with contextlib.closing(Api()) as api:
        return api.call("POST", "/v1/templates", BuildInfo, body)


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
    """Carry out a waiting build. The other errors are those of ``Templates.build``.

    Args:
        build_id: The build's id.
        spec: What to build.
        team: The team that owns the template.
        context: Directory of this host that copy steps take files from.
        archives: Tars, gzipped or not, that copy steps may name instead, by name. Their content is not
            trusted.
        on_begun: Called once nobody else can begin the build.
        on_line: Called with each line of its log.
        timeout_s: Seconds for running and copying. Pulling and storing states have their own bounds.

    Raises:
        StateError: The build was begun before.
    """
    from atoll.sdk._sync.building import Builder

    spec = checked(spec)
    files = Context(None if context is None else Path(context), archives, spec.ignore)
    with contextlib.closing(Api()) as api:
        if isinstance(api.place, There):
            from atoll.sdk._sync.remote_building import RemoteBuilder

            there = RemoteBuilder(api, build_id, spec, context=files, on_begun=on_begun, on_line=on_line)
            return there.run(timeout_s)
        path = f"/v1/builds/{ref(build_id)}"
        build, hold = api.hold("POST", f"{path}/begin", BuildInfo)
        builder = Builder(
            api, build, spec, team=team, context=files, on_line=on_line, timeout_s=timeout_s
        )
        try:
            return _built(api, builder, path, None if on_begun is None else partial(on_begun, build))
        finally:
            builder.close()
            hold.close()


def _built(
    api: Api, builder: Builder, path: str, on_begun: Callable[[], Any] | None
) -> BuildInfo:
    """Run a build and tell the supervisor how it ended."""
    from atoll.sdk._sync.building import failure

    try:
        if on_begun is not None:
            call(on_begun)
        ready = FinishRequest(state="ready", snapshot_id=builder.run(), image=builder.image)
        build = api.call("POST", f"{path}/finish", BuildInfo, ready, timeout_s=LONG_S)
        # another party ended the build: it was cancelled, or a new supervisor ended it
        if build.state != "ready":
            raise TemplateBuildError(f"the build is {build.state}: {build.reason}")
        return build
    except BaseException as error:
        state: Literal["failed", "cancelled"] = "failed" if isinstance(error, Exception) else "cancelled"
        over = FinishRequest(state=state, step=builder.step, reason=failure(error))
        with shielded(_END_S), contextlib.suppress(AtollError):
            # if this call fails, the supervisor notices that the held connection is gone
            api.call("POST", f"{path}/finish", BuildInfo, over, timeout_s=_END_S)
        raise
