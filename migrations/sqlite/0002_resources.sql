-- Documents that are held here. `value` of `resource` is the current one; a deleted resource keeps its row, so that its
-- versions go on from there. `salt` is that of the digests of its fields.
ALTER TABLE resource ADD COLUMN deleted_at BIGINT;
ALTER TABLE resource ADD COLUMN salt TEXT;

-- Every version with its document and who made it; of what lives elsewhere only who reported it.
CREATE TABLE resource_version (
    target TEXT NOT NULL,
    version BIGINT NOT NULL,
    change TEXT NOT NULL,
    document TEXT,
    by_actor TEXT NOT NULL,
    run TEXT,
    operation TEXT,
    agent TEXT,
    approval TEXT,
    person TEXT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (target, version)
);

-- What each version changed, by JSON pointer. The key serves both the range of versions and the single row.
CREATE TABLE resource_field (
    target TEXT NOT NULL,
    version BIGINT NOT NULL,
    pointer TEXT NOT NULL,
    change TEXT NOT NULL,
    old_digest TEXT,
    new_digest TEXT,
    PRIMARY KEY (target, version, pointer)
);

-- Rules of admins about documents; only ever added, the newest version of an id is in force unless it was removed.
CREATE TABLE resource_rule (
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    scope TEXT NOT NULL,
    document TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    removed_at BIGINT,
    PRIMARY KEY (id, version)
);

-- A person who writes by hand does so through an agent of their own, which has no token.
ALTER TABLE agent ADD COLUMN person TEXT;
