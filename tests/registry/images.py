"""Images made of archives, as a registry keeps them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True)
class File:
    """An entry of a layer. ``kind`` is a type of ``tarfile``."""

    name: str
    content: bytes = b""
    mode: int = 0o644
    kind: bytes = tarfile.REGTYPE
    link: str = ""
    uid: int = 0
    gid: int = 0
    mtime: int = 1_700_000_000
    attributes: Mapping[str, str] = field(default_factory=dict)


def directory(name: str, mode: int = 0o755, **more: Any) -> File:
    return File(name, mode=mode, kind=tarfile.DIRTYPE, **more)


def symlink(name: str, target: str) -> File:
    return File(name, mode=0o777, kind=tarfile.SYMTYPE, link=target)


def hard_link(name: str, target: str) -> File:
    return File(name, kind=tarfile.LNKTYPE, link=target)


def archive(files: Sequence[File]) -> bytes:
    """The tar of a layer."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for file in files:
            info = tarfile.TarInfo(file.name)
            info.mode, info.type, info.linkname = file.mode, file.kind, file.link
            info.uid, info.gid, info.mtime = file.uid, file.gid, file.mtime
            info.size = len(file.content)
            info.pax_headers = {f"SCHILY.xattr.{name}": value for name, value in file.attributes.items()}
            tar.addfile(info, io.BytesIO(file.content))
    return out.getvalue()


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def packed(tar: bytes, how: str) -> bytes:
    """A layer's blob: ``gzip``, ``zstd`` or ``plain``."""
    if how == "gzip":
        return gzip.compress(tar, mtime=0)
    if how == "zstd":
        return stored_zstd(tar)
    return tar


def stored_zstd(data: bytes) -> bytes:
    """A zstd frame of raw blocks, which any decoder takes: no library is needed to write one."""
    blocks = [data[start : start + 100_000] for start in range(0, len(data), 100_000)] or [b""]
    frame = b"\x28\xb5\x2f\xfd" + b"\xa0" + len(data).to_bytes(4, "little")
    for index, block in enumerate(blocks):
        last = index == len(blocks) - 1
        frame += ((len(block) << 3) | last).to_bytes(3, "little") + block
    return frame


class ImageSource:
    """An image to be served.

    Args:
        layers: The files of each layer, the lowest first; or ready archives.
        config: Its ``config``: ``Env``, ``User`` and so on.
        how: How each layer is packed; shorter lists are repeated.
        described: What is served in place of its configuration.
    """

    def __init__(
        self,
        layers: Sequence[Sequence[File] | bytes],
        config: Mapping[str, Any] | None = None,
        how: Sequence[str] = ("gzip",),
        architecture: str = ARCHITECTURE,
        described: bytes | None = None,
    ) -> None:
        tars = [layer if isinstance(layer, bytes) else archive(layer) for layer in layers]
        hows = [how[index % len(how)] for index in range(len(tars))]
        self.architecture = architecture
        self.blobs: dict[str, bytes] = {}
        self.layers: list[dict[str, Any]] = []
        for tar, way in zip(tars, hows, strict=True):
            blob = packed(tar, way)
            suffix = {"gzip": "+gzip", "zstd": "+zstd", "plain": ""}[way]
            self.layers.append({"mediaType": LAYER + suffix, "digest": digest(blob), "size": len(blob)})
            self.blobs[digest(blob)] = blob
        self.diff_ids = [digest(tar) for tar in tars]
        rightly = {
            "architecture": architecture,
            "os": "linux",
            "config": dict(config or {}),
            "rootfs": {"type": "layers", "diff_ids": self.diff_ids},
        }
        raw = json.dumps(rightly).encode() if described is None else described
        self.blobs[digest(raw)] = raw
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": digest(raw), "size": len(raw)},
            "layers": self.layers,
        }
        self.manifest = json.dumps(manifest).encode()
        self.digest = digest(self.manifest)


def index_of(*images: ImageSource, told: bool = True) -> bytes:
    """An index of images for several architectures; ``told`` says whether it tells them."""
    rows = [
        {
            "mediaType": MANIFEST,
            "digest": image.digest,
            "size": len(image.manifest),
            **({"platform": {"architecture": image.architecture, "os": "linux"}} if told else {}),
        }
        for image in images
    ]
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": rows}).encode()
