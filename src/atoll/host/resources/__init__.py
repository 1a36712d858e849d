"""The host's memory, processors and disks, and the cgroups that limit them."""
