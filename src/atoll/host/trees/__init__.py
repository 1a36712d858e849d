"""Directory trees: copies, checksums, and use of trees that are not trusted."""
