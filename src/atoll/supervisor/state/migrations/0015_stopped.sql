ALTER TABLE sandboxes ADD COLUMN stopped_at REAL;
