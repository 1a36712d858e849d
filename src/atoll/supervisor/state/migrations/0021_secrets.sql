-- What is stored of a value is sealed with a key that is not in here.
CREATE TABLE secrets (
    secret_id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    team TEXT,
    hosts TEXT NOT NULL DEFAULT '[]',
    metadata TEXT NOT NULL DEFAULT '{}',
    canary INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL,
    sealed BLOB NOT NULL,
    created_at REAL NOT NULL,
    changed_at REAL NOT NULL
);
