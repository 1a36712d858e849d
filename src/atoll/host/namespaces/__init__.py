"""User, mount and network namespaces, and the process that keeps them alive."""
