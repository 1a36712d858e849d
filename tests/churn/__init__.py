"""Churn: sandboxes come and go for a long time, and the home and its supervisor stay as small as they were."""
