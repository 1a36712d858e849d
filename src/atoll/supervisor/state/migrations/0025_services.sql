-- What was called so are the start commands of templates.
ALTER TABLE sandboxes RENAME COLUMN services TO start_commands;
ALTER TABLE snapshots RENAME COLUMN services TO start_commands;
-- The programs that the agent keeps running.
ALTER TABLE sandboxes ADD COLUMN services TEXT NOT NULL DEFAULT '[]';
ALTER TABLE snapshots ADD COLUMN services TEXT NOT NULL DEFAULT '[]';
