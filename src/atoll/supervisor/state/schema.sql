-- The tables of a home. Each row is a struct of rows.py with the columns named after its fields.
-- A change of this file needs another VERSION in database.py.

CREATE TABLE sandboxes (
    sandbox_id TEXT PRIMARY KEY,
    name TEXT UNIQUE,
    state TEXT NOT NULL,
    created_at REAL NOT NULL,
    changed_at REAL NOT NULL,
    metadata TEXT NOT NULL,
    disk TEXT NOT NULL,
    machine_uid TEXT NOT NULL,
    lifecycle TEXT NOT NULL,
    started_at REAL NOT NULL,
    stopped_at REAL,
    ends_at REAL,
    has_memory INTEGER NOT NULL,
    attributes TEXT NOT NULL,
    ports TEXT NOT NULL,
    host_boot TEXT NOT NULL,
    created_boot_s REAL NOT NULL,
    ends_boot_s REAL,
    machine_id TEXT,
    machine BLOB,
    link_id TEXT,
    snapshot_id TEXT,
    reason TEXT,
    recovered TEXT NOT NULL,
    crashed_running INTEGER NOT NULL,
    unplugged TEXT NOT NULL,
    snapshot_failed TEXT NOT NULL,
    napping INTEGER NOT NULL,
    runs TEXT NOT NULL,
    idempotency TEXT NOT NULL,
    promoted TEXT NOT NULL,
    sleep_cause TEXT,
    awake_until REAL,
    wakes_at REAL,
    made_by TEXT,
    is_bound INTEGER NOT NULL,
    left_at REAL,
    left_boot_s REAL,
    image TEXT NOT NULL,
    image_digest TEXT NOT NULL,
    stack TEXT NOT NULL,
    versions TEXT NOT NULL,
    generation INTEGER NOT NULL,
    env TEXT NOT NULL,
    network TEXT NOT NULL,
    limits TEXT NOT NULL,
    trust_host_ca INTEGER NOT NULL,
    "user" TEXT NOT NULL,
    cwd TEXT NOT NULL,
    engine_disk INTEGER NOT NULL,
    start INTEGER NOT NULL,
    start_commands TEXT NOT NULL,
    services TEXT NOT NULL,
    on_crash TEXT NOT NULL,
    volumes TEXT NOT NULL,
    team TEXT,
    delegation TEXT NOT NULL,
    models TEXT NOT NULL
);

CREATE TABLE snapshots (
    snapshot_id TEXT PRIMARY KEY,
    name TEXT UNIQUE,
    comment TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    parent_id TEXT,
    created_at REAL NOT NULL,
    memory_bytes INTEGER NOT NULL,
    disk_bytes INTEGER NOT NULL,
    stopped_ms REAL NOT NULL,
    build_id TEXT,
    automatic INTEGER NOT NULL,
    changed_at REAL NOT NULL,
    image TEXT NOT NULL,
    image_digest TEXT NOT NULL,
    stack TEXT NOT NULL,
    versions TEXT NOT NULL,
    generation INTEGER NOT NULL,
    env TEXT NOT NULL,
    network TEXT NOT NULL,
    limits TEXT NOT NULL,
    trust_host_ca INTEGER NOT NULL,
    "user" TEXT NOT NULL,
    cwd TEXT NOT NULL,
    engine_disk INTEGER NOT NULL,
    start INTEGER NOT NULL,
    start_commands TEXT NOT NULL,
    services TEXT NOT NULL,
    on_crash TEXT NOT NULL,
    volumes TEXT NOT NULL,
    team TEXT,
    delegation TEXT NOT NULL,
    models TEXT NOT NULL
);

CREATE TABLE volumes (
    volume_id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    team TEXT,
    created_at REAL NOT NULL,
    quota_mib INTEGER,
    changed_at REAL NOT NULL
);

CREATE TABLE teams (
    name TEXT PRIMARY KEY,
    created_at REAL NOT NULL,
    changed_at REAL NOT NULL,
    quotas TEXT NOT NULL,
    ceiling TEXT NOT NULL
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

-- What is stored of a value is sealed with a key that is not in here.
CREATE TABLE secrets (
    secret_id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    team TEXT,
    hosts TEXT NOT NULL,
    metadata TEXT NOT NULL,
    canary INTEGER NOT NULL,
    version INTEGER NOT NULL,
    sealed BLOB NOT NULL,
    created_at REAL NOT NULL,
    changed_at REAL NOT NULL
);

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

CREATE TABLE operations (
    sandbox_id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    created_at REAL NOT NULL,
    link_id TEXT
);

-- Only the roots of the chains.
CREATE TABLE delegations (
    uid TEXT PRIMARY KEY,
    issuer TEXT NOT NULL,
    created_at REAL NOT NULL
);

-- What sandboxes may spend on models. What is spent, and what the edge holds to spend, never exceeds the limit.
CREATE TABLE budgets (
    budget TEXT PRIMARY KEY,
    created_at REAL NOT NULL,
    until INTEGER NOT NULL,
    limit_tokens INTEGER,
    limit_nanos INTEGER,
    spent_tokens INTEGER NOT NULL,
    spent_nanos INTEGER NOT NULL,
    allotted_tokens INTEGER NOT NULL,
    allotted_nanos INTEGER NOT NULL
);

CREATE TABLE model_uses (
    use_key TEXT PRIMARY KEY,
    created_at REAL NOT NULL,
    day TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    team TEXT,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    requests INTEGER NOT NULL,
    input INTEGER NOT NULL,
    cache_read INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    output INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    nanos INTEGER NOT NULL
);

CREATE TABLE edges (
    place TEXT PRIMARY KEY,
    created_at REAL NOT NULL,
    edge TEXT NOT NULL,
    last_bill INTEGER NOT NULL
);
