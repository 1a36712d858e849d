"""Proves that what is stored is what was written: checksums, their checks, repairs."""
