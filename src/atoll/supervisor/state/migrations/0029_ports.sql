-- Whether the ports of a sandbox are closed to those without a token. It was an attribute.
ALTER TABLE sandboxes ADD COLUMN ports TEXT NOT NULL DEFAULT 'open';
UPDATE sandboxes SET ports = 'closed' WHERE json_extract(attributes, '$.e2b_public_traffic') = '0';
