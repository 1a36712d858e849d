-- The key and the digest of the request that made a sandbox; null if it had no key.
ALTER TABLE sandboxes ADD COLUMN idempotency TEXT NOT NULL DEFAULT 'null';
