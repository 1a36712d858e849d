"""Manages what is on the disk: images, volumes, layers, and their removal."""
