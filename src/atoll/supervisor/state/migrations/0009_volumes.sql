CREATE TABLE volumes (
    volume_id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    team TEXT,
    created_at REAL NOT NULL
);
