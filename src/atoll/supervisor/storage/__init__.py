"""Manages what is on the disk: images, volumes, layers, checksums, and their removal."""
