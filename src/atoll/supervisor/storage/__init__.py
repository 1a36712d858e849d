"""Manages the images, volumes and layers on the disk, and their removal."""
