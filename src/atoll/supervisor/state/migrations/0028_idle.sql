-- Why a sandbox sleeps, and until when it is kept awake.
ALTER TABLE sandboxes ADD COLUMN sleep_cause TEXT;
ALTER TABLE sandboxes ADD COLUMN awake_until REAL;
