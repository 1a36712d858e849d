"""A POSIX suite that runs inside a sandbox; see ``program``."""
