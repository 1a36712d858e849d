"""Snapshots: writable and frozen layers of disks, and the tree of snapshots."""

from atoll.snapshots.chains import Merges, Stack, replaced, run_to_merge
from atoll.snapshots.image_roots import ImageRoots
from atoll.snapshots.layercopy import LayerCopy
from atoll.snapshots.layerdiff import LayerDiff
from atoll.snapshots.layers import UNDONE, Layers, writable_layer
from atoll.snapshots.layerstore import new_layer_id
from atoll.snapshots.lineage import SnapshotTree, line_of
from atoll.snapshots.retention import surplus
from atoll.snapshots.stored_trees import restore_tree, store_tree

__all__ = [
    "UNDONE",
    "ImageRoots",
    "LayerCopy",
    "LayerDiff",
    "Layers",
    "Merges",
    "SnapshotTree",
    "Stack",
    "line_of",
    "new_layer_id",
    "replaced",
    "run_to_merge",
    "surplus",
    "writable_layer",
    "restore_tree",
    "store_tree",
]
