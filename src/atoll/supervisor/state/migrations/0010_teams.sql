CREATE TABLE teams (
    name TEXT PRIMARY KEY,
    created_at REAL NOT NULL,
    changed_at REAL NOT NULL,
    quotas TEXT NOT NULL
);

CREATE TABLE keys (
    key_id TEXT PRIMARY KEY,
    team TEXT NOT NULL,
    name TEXT NOT NULL,
    prefix TEXT NOT NULL,
    hash TEXT NOT NULL,
    created_at REAL NOT NULL,
    changed_at REAL NOT NULL,
    expires_at REAL,
    used_at REAL,
    revoked_at REAL
);
