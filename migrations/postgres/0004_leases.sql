-- One row for each resource that was ever leased. `token` is the last fencing token handed out, and never goes back:
-- rows stay when leases are forgotten.
CREATE TABLE fence (
    resource TEXT PRIMARY KEY NOT NULL,
    token BIGINT NOT NULL,
    current_lease TEXT
);

CREATE TABLE lease (
    id TEXT PRIMARY KEY NOT NULL,
    resource TEXT NOT NULL,
    fencing_token BIGINT NOT NULL,
    run TEXT NOT NULL REFERENCES run (id),
    agent TEXT NOT NULL REFERENCES agent (id),
    version BIGINT NOT NULL,
    acquired_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    progress TEXT,
    progressed_at BIGINT NOT NULL,
    ending TEXT,
    ended_at BIGINT,
    ended_by TEXT,
    end_reason TEXT
);
CREATE INDEX lease_resource ON lease (resource, id);
CREATE INDEX lease_run ON lease (run, ended_at);
CREATE INDEX lease_open ON lease (ended_at, expires_at);

-- A person's consent to what a run may write within bounds, used up one operation at a time.
CREATE TABLE run_approval (
    id TEXT PRIMARY KEY NOT NULL,
    run TEXT NOT NULL REFERENCES run (id),
    kinds TEXT NOT NULL,
    targets TEXT NOT NULL,
    max_count BIGINT NOT NULL,
    used BIGINT NOT NULL,
    reason TEXT,
    granted_by TEXT NOT NULL REFERENCES person (id),
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    revoked_at BIGINT,
    revoked_by TEXT
);
CREATE INDEX run_approval_run ON run_approval (run, id);

CREATE INDEX run_expiry ON run (expires_at);
