ALTER TABLE sandboxes ADD COLUMN limits TEXT NOT NULL DEFAULT '{}';
UPDATE sandboxes SET limits = json_patch('{}', json_object('memory_mib', memory_mib, 'vcpus', vcpus));
ALTER TABLE sandboxes DROP COLUMN memory_mib;
ALTER TABLE sandboxes DROP COLUMN vcpus;
ALTER TABLE snapshots ADD COLUMN limits TEXT NOT NULL DEFAULT '{}';
UPDATE snapshots SET limits = json_patch('{}', json_object('memory_mib', memory_mib, 'vcpus', vcpus));
ALTER TABLE snapshots DROP COLUMN memory_mib;
ALTER TABLE snapshots DROP COLUMN vcpus;
