"""What is watched while sandboxes run."""
