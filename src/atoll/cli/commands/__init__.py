"""One file per command; each holds it as ``command``."""
