-- Who made which version, without reading the documents, which come before these columns in a row.
CREATE INDEX resource_version_author ON resource_version (target, version, run, operation, agent, approval, person, created_at);
