-- The ids of the sandboxes whose state this one has taken over, newest last.
ALTER TABLE sandboxes ADD COLUMN promoted TEXT NOT NULL DEFAULT '[]';
