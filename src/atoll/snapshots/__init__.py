"""Snapshots: writable and frozen layers of disks, and which snapshot stands on which."""

from atoll.snapshots.layercopy import LayerCopy
from atoll.snapshots.layers import Layers, Stack, new_layer_id
from atoll.snapshots.lineage import SnapshotTree

__all__ = ["LayerCopy", "Layers", "SnapshotTree", "Stack", "new_layer_id"]
