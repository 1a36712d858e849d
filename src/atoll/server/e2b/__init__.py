"""E2B's protocol: bodies, views, and what its words mean here."""
