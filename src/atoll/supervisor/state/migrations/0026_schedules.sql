-- The last run of each service that has a schedule.
ALTER TABLE sandboxes ADD COLUMN runs TEXT NOT NULL DEFAULT '{}';
