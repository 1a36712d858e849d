"""Keeps states away from this host: content-addressed pieces in packs, and records of who owns what."""

from atoll.store.collector import Collected, Collector, stored_bytes
from atoll.store.contents import Content
from atoll.store.directory import DirectoryObjects
from atoll.store.exports import ExportHead, ExportObjects, begin_export, read_export
from atoll.store.keys import StoreKey
from atoll.store.objects import MissingObjectError, Objects, StoredObject, Versioned
from atoll.store.reader import Reader
from atoll.store.records import FoundRecord, Record, Records
from atoll.store.store import GRACE_S, Manifest, Store, Writing
from atoll.store.writer import ContentWriter, Writer

__all__ = [
    "GRACE_S",
    "Collected",
    "Collector",
    "Content",
    "ContentWriter",
    "DirectoryObjects",
    "ExportHead",
    "ExportObjects",
    "FoundRecord",
    "Manifest",
    "MissingObjectError",
    "Objects",
    "Reader",
    "Record",
    "Records",
    "Store",
    "StoreKey",
    "StoredObject",
    "Versioned",
    "Writer",
    "Writing",
    "begin_export",
    "read_export",
    "stored_bytes",
]
