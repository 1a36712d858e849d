-- What a team's sandboxes reach at most, as JSON. Teams of before have no ceiling.
ALTER TABLE teams ADD COLUMN ceiling TEXT NOT NULL DEFAULT 'null';
