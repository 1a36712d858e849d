"""Templates: named states that sandboxes start from."""
