"""The numbers that SPECIFICATION.md promises, measured on this machine."""
