"""What the supervisor knows: rows, registry, operation log, and the small things that all rooms stand on."""
