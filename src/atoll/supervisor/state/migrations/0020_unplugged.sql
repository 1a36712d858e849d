-- When and why a sandbox was cut off from its network and frozen; null if it was not.
ALTER TABLE sandboxes ADD COLUMN unplugged TEXT NOT NULL DEFAULT 'null';
