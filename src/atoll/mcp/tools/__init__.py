"""The tools, one file for each noun. Each has ``add``, which adds its tools to a server."""
