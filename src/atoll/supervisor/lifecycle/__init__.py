"""The operations on a sandbox, one file for each."""
