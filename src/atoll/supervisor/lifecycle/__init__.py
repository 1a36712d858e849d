"""What can be done to a sandbox: one file for each operation."""
