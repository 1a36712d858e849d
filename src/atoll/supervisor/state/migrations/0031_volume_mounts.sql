-- How a volume is mounted, where only its id was.
UPDATE sandboxes SET volumes = (
    SELECT json_group_object(key, json_object('volume', value, 'read_only', json('false')))
    FROM json_each(sandboxes.volumes)
);
UPDATE snapshots SET volumes = (
    SELECT json_group_object(key, json_object('volume', value, 'read_only', json('false')))
    FROM json_each(snapshots.volumes)
);
