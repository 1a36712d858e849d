"""Crashes on the real host."""

import os

# An ordinary user can mount no disk; for one, tests/unit/supervisor lets single steps find the disk full.
collect_ignore = [] if os.geteuid() == 0 else ["test_full_disk.py"]
