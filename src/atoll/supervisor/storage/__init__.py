"""What lies on the disk: images, volumes, layers, checksums, and what is erased."""
