ALTER TABLE snapshots ADD COLUMN build_id TEXT;

CREATE TABLE templates (
    template_id TEXT PRIMARY KEY,
    name TEXT,
    team TEXT,
    public INTEGER NOT NULL,
    created_at REAL NOT NULL,
    changed_at REAL NOT NULL,
    tags TEXT NOT NULL,
    builds TEXT NOT NULL
);

CREATE TABLE steps (
    step_key TEXT PRIMARY KEY,
    snapshot_id TEXT NOT NULL,
    created_at REAL NOT NULL,
    used_at REAL NOT NULL
);
