"""Our changes to gVisor as commits of a git repository, and back: `scripts/gvisor`."""
