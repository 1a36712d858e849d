-- The newest crash after which a sandbox went on without its memory.
ALTER TABLE sandboxes ADD COLUMN recovered TEXT NOT NULL DEFAULT 'null';
