"""Directory trees: copies, checksums, and safe access to untrusted trees."""
