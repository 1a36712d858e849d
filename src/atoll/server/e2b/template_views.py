"""Templates and builds in the form of E2B's API."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import UNSET

from atoll.server.e2b.host_capacity import HostCapacity
from atoll.server.e2b.template_wire import (
    BuildStatus,
    Entry,
    ListedBuild,
    ListedTemplate,
    Reason,
    Requested,
    Status,
    Tag,
    TemplateDetail,
)
from atoll.server.e2b.views import ENVD_VERSION, moment
from atoll.types import BuildInfo, BuildLine, BuildState, Limits, TemplateInfo

_STATUS: dict[BuildState, Status] = {
    "waiting": "waiting",
    "building": "building",
    "ready": "ready",
    "failed": "error",
    "cancelled": "error",
}
_LAST_LINES = 20


@dataclass(frozen=True)
class TemplateViews:
    """Converts templates to the bodies that clients get.

    Args:
        capacity: The limits of a sandbox without its own.
    """

    capacity: HostCapacity

    def requested(self, info: TemplateInfo, build: BuildInfo) -> Requested:
        """Return a waiting build."""
        names = names_of(info)
        return Requested(
            template_id=info.template_id,
            build_id=build.build_id,
            public=info.public,
            names=names,
            tags=build.tags,
            aliases=[info.name] if info.name else [],
        )

    def listed(self, info: TemplateInfo) -> ListedTemplate:
        """Return a row of a list."""
        build = info.build() or info.builds[-1]
        vcpus, memory_mib = self._size(build.limits)
        return ListedTemplate(
            template_id=info.template_id,
            build_id=build.build_id,
            cpu_count=vcpus,
            memory_mb=memory_mib,
            public=info.public,
            aliases=[info.name] if info.name else [],
            names=names_of(info),
            created_at=moment(info.created_at),
            updated_at=moment(info.changed_at),
            build_count=len(info.builds),
            envd_version=ENVD_VERSION,
            build_status=_STATUS[build.state],
        )

    def detail(self, info: TemplateInfo) -> TemplateDetail:
        """Return a template with its builds, the newest first."""
        return TemplateDetail(
            template_id=info.template_id,
            public=info.public,
            aliases=[info.name] if info.name else [],
            names=names_of(info),
            created_at=moment(info.created_at),
            updated_at=moment(info.changed_at),
            builds=[self._build(build) for build in reversed(info.builds)],
        )

    def _build(self, build: BuildInfo) -> ListedBuild:
        vcpus, memory_mib = self._size(build.limits)
        is_over = build.state not in ("waiting", "building")
        return ListedBuild(
            build_id=build.build_id,
            status=_STATUS[build.state],
            created_at=moment(build.created_at),
            updated_at=moment(build.changed_at),
            finished_at=moment(build.changed_at) if is_over else UNSET,
            cpu_count=vcpus,
            memory_mb=memory_mib,
            envd_version=ENVD_VERSION,
        )

    def _size(self, limits: Limits) -> tuple[int, int]:
        vcpus = math.ceil(limits.vcpus) if limits.vcpus else self.capacity.vcpus
        return vcpus, limits.memory_mib or self.capacity.memory_mib


def names_of(info: TemplateInfo) -> list[str]:
    """Return a template's full names."""
    return [f"{info.team}/{info.name}"] if info.name else []


def tags_of(info: TemplateInfo) -> list[Tag]:
    """Return a template's tags, the newest first."""
    rows = sorted(info.tags.items(), key=lambda item: item[1].created_at, reverse=True)
    return [Tag(tag=tag, build_id=of.build_id, created_at=moment(of.created_at)) for tag, of in rows]


def status_of(build: BuildInfo, page: Sequence[BuildLine], lines: Sequence[BuildLine]) -> BuildStatus:
    """Return a build's progress, with a page of its lines. All lines together explain a failure."""
    return BuildStatus(
        template_id=build.template_id,
        build_id=build.build_id,
        status=_STATUS[build.state],
        logs=[],
        log_entries=[entry(line) for line in page],
        reason=_reason(build, lines) if _STATUS[build.state] == "error" else UNSET,
    )


def entry(line: BuildLine) -> Entry:
    """Return a line of a log."""
    return Entry(timestamp=moment(line.at), level=line.level, message=line.message, step=line.step or UNSET)


def _reason(build: BuildInfo, lines: Sequence[BuildLine]) -> Reason:
    last = [entry(line) for line in lines if build.step and line.step == build.step][-_LAST_LINES:]
    return Reason(
        message=build.reason or "the build was cancelled", step=build.step or UNSET, log_entries=last
    )
