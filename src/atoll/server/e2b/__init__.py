"""E2B's protocol: bodies, views, and what its terms mean here."""
