-- What the systems downstream declare about lost answers, and what has been shown of it.

CREATE TABLE provider (
    name TEXT NOT NULL,
    version BIGINT NOT NULL,
    document TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (name, version)
);

-- The last check of each guarantee, of one version of the declaration.
CREATE TABLE provider_check (
    provider TEXT NOT NULL,
    version BIGINT NOT NULL,
    guarantee TEXT NOT NULL,
    passed BIGINT NOT NULL,
    detail TEXT NOT NULL,
    checked_at BIGINT NOT NULL,
    PRIMARY KEY (provider, version, guarantee)
);

-- Sealed under a key that is not in the database.
CREATE TABLE credential (
    provider TEXT PRIMARY KEY NOT NULL,
    sealed TEXT NOT NULL,
    updated_at BIGINT NOT NULL
);
