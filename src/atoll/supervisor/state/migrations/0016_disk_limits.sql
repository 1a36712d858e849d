-- What was made before there was a default limit of the disk goes on without one.
UPDATE sandboxes SET limits = json_set(limits, '$.disk_mib', 1000000000)
    WHERE json_extract(limits, '$.disk_mib') IS NULL AND NOT engine_disk;
UPDATE snapshots SET limits = json_set(limits, '$.disk_mib', 1000000000)
    WHERE json_extract(limits, '$.disk_mib') IS NULL AND NOT engine_disk;
