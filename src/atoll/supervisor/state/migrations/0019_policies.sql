-- What a sandbox may reach is a preset's name or a policy, both as JSON.
UPDATE sandboxes SET network = '"' || network || '"';
UPDATE snapshots SET network = '"' || network || '"';
