-- When a sandbox that sleeps wakes by itself, because a program inside wants it.
ALTER TABLE sandboxes ADD COLUMN wakes_at REAL;
