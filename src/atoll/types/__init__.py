"""Frozen values that cross room borders: what is wanted, what is observed. No input or output happens here."""

from atoll.types.files import FileInfo, FileKind, WatchEvent, WatchKind
from atoll.types.given import (
    GuestPath,
    as_json,
    check_choice,
    check_kind,
    check_number,
    check_text,
    check_texts,
    copied,
    local_path,
    path_text,
)
from atoll.types.images import ImageAccess, ImageInfo, RegistryLogin
from atoll.types.lengths import seconds_of
from atoll.types.lifecycle import Lifecycle, OnTimeout
from atoll.types.limits import Limits
from atoll.types.processes import ExecResult, Output, ProcessInfo, TerminalSize
from atoll.types.progress import Progress
from atoll.types.sandboxes import (
    OWN_ATTRIBUTES,
    Network,
    OnCrash,
    SandboxInfo,
    SandboxPage,
    SandboxSpec,
    SandboxState,
)
from atoll.types.snapshots import SnapshotInfo
from atoll.types.stats import SandboxStats, StatsSample
from atoll.types.teams import KeyInfo, NewKey, Quotas, TeamInfo, TeamUse, key_hash, key_id_of, key_prefix
from atoll.types.templates import (
    DEFAULT_TAG,
    BuildInfo,
    BuildLine,
    BuildState,
    CopyStep,
    EnvStep,
    Resolved,
    RunStep,
    Service,
    Step,
    TagInfo,
    TemplateInfo,
    TemplateSpec,
    UserStep,
    WorkdirStep,
)
from atoll.types.verify import Damage, VerifiedPart, VerifyReport
from atoll.types.volumes import VolumeEntry, VolumeInfo

__all__ = [
    "DEFAULT_TAG",
    "OWN_ATTRIBUTES",
    "BuildInfo",
    "BuildLine",
    "BuildState",
    "CopyStep",
    "Damage",
    "EnvStep",
    "ExecResult",
    "FileInfo",
    "FileKind",
    "GuestPath",
    "ImageAccess",
    "ImageInfo",
    "KeyInfo",
    "Lifecycle",
    "Limits",
    "Network",
    "NewKey",
    "OnCrash",
    "OnTimeout",
    "Output",
    "ProcessInfo",
    "Progress",
    "Quotas",
    "RegistryLogin",
    "Resolved",
    "RunStep",
    "SandboxInfo",
    "SandboxPage",
    "SandboxSpec",
    "SandboxState",
    "SandboxStats",
    "Service",
    "SnapshotInfo",
    "StatsSample",
    "Step",
    "TagInfo",
    "TeamInfo",
    "TeamUse",
    "TemplateInfo",
    "TemplateSpec",
    "TerminalSize",
    "UserStep",
    "VerifiedPart",
    "VerifyReport",
    "VolumeEntry",
    "VolumeInfo",
    "WatchEvent",
    "WatchKind",
    "WorkdirStep",
    "as_json",
    "check_choice",
    "check_kind",
    "check_number",
    "check_text",
    "check_texts",
    "copied",
    "key_hash",
    "key_id_of",
    "key_prefix",
    "local_path",
    "path_text",
    "seconds_of",
]
