"""One file per command. Each file defines it as ``command``."""
