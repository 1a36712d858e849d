-- Whether a snapshot was made by itself, and why the last one that was to be was not.
ALTER TABLE snapshots ADD COLUMN automatic INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN snapshot_failed TEXT;
-- Whether a crashed sandbox ran when it crashed.
ALTER TABLE sandboxes ADD COLUMN crashed_running INTEGER NOT NULL DEFAULT 0;
