"""The host's memory, processors and disks, and the control groups that share them out."""
