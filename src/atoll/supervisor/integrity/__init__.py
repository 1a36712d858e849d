"""Proves that stored data is still as it was written: checksums, their checks, repairs."""
