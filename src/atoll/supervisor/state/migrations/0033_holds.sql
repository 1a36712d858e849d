-- Who made a sandbox, and what becomes of one whose clients are gone.
ALTER TABLE sandboxes ADD COLUMN made_by TEXT;
ALTER TABLE sandboxes ADD COLUMN is_bound INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN left_at REAL;
ALTER TABLE sandboxes ADD COLUMN left_boot_s REAL;
