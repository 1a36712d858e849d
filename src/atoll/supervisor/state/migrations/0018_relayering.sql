-- A sandbox that sleeps only while it is put on another layer: a next supervisor has it go on.
ALTER TABLE sandboxes ADD COLUMN relayering INTEGER NOT NULL DEFAULT 0;
UPDATE sandboxes SET relayering = 1, reason = NULL WHERE state = 'suspended' AND reason = 'it is to go on in a moment';
