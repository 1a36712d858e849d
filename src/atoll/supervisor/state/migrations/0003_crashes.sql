ALTER TABLE sandboxes ADD COLUMN on_crash TEXT NOT NULL DEFAULT 'reboot';
ALTER TABLE snapshots ADD COLUMN on_crash TEXT NOT NULL DEFAULT 'reboot';

CREATE TABLE operations (
    sandbox_id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    created_at REAL NOT NULL,
    link_id TEXT
);
