-- Every integer is BIGINT, every time is milliseconds since the epoch, every document is JSON text.

CREATE TABLE setting (
    name TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
);

CREATE TABLE person (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL UNIQUE,
    role TEXT NOT NULL,
    groups TEXT NOT NULL,
    password_hash TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    disabled_at BIGINT
);

CREATE TABLE session (
    id_hash TEXT PRIMARY KEY NOT NULL,
    id TEXT NOT NULL UNIQUE,
    person TEXT,
    data TEXT NOT NULL,
    user_agent TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    last_seen_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX session_person ON session (person);

CREATE TABLE agent (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL REFERENCES person (id),
    token_hash TEXT NOT NULL UNIQUE,
    allow TEXT,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT
);

CREATE TABLE executor (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL UNIQUE,
    kinds TEXT NOT NULL,
    token_hash TEXT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT
);

CREATE TABLE run (
    id TEXT PRIMARY KEY NOT NULL,
    agent TEXT NOT NULL REFERENCES agent (id),
    label TEXT NOT NULL,
    token_hash TEXT NOT NULL UNIQUE,
    write_set TEXT,
    reads TEXT,
    defaults TEXT,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    stopped_at BIGINT,
    stopped_by TEXT,
    stop_reason TEXT
);
CREATE INDEX run_agent ON run (agent, id);

CREATE TABLE kind (
    name TEXT NOT NULL,
    version BIGINT NOT NULL,
    document TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (name, version)
);

CREATE TABLE policy (
    version BIGINT PRIMARY KEY NOT NULL,
    document TEXT NOT NULL,
    changed_by TEXT,
    created_at BIGINT NOT NULL
);

-- `proposal` and `canonical` never change; `life` is the only document that does. The columns beside them are copies
-- that queries and guards need, written by the same statement.
CREATE TABLE operation (
    id TEXT PRIMARY KEY NOT NULL,
    agent TEXT NOT NULL REFERENCES agent (id),
    run TEXT NOT NULL REFERENCES run (id),
    kind TEXT NOT NULL,
    target TEXT NOT NULL,
    risk TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    business_key TEXT,
    canonical TEXT NOT NULL,
    proposal TEXT NOT NULL,
    salt TEXT NOT NULL,
    state TEXT NOT NULL,
    version BIGINT NOT NULL,
    deadline_at BIGINT,
    possibly_applied BIGINT NOT NULL,
    life TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX operation_state ON operation (state, id);
CREATE INDEX operation_agent ON operation (agent, state, id);
CREATE INDEX operation_run ON operation (run, id);
CREATE INDEX operation_target ON operation (target, state, id);
CREATE INDEX operation_fingerprint ON operation (agent, fingerprint, id);
CREATE INDEX operation_business_key ON operation (kind, target, business_key);
CREATE INDEX operation_deadline ON operation (deadline_at);

CREATE TABLE idempotency_key (
    agent TEXT NOT NULL,
    key TEXT NOT NULL,
    operation TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expired_at BIGINT,
    PRIMARY KEY (agent, key)
);
CREATE INDEX idempotency_key_operation ON idempotency_key (operation);

CREATE TABLE evidence (
    id TEXT PRIMARY KEY NOT NULL,
    operation TEXT NOT NULL REFERENCES operation (id),
    record TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX evidence_operation ON evidence (operation, id);

CREATE TABLE conflict (
    id TEXT PRIMARY KEY NOT NULL,
    operation TEXT NOT NULL REFERENCES operation (id),
    agent TEXT NOT NULL,
    resource TEXT NOT NULL,
    record TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX conflict_operation ON conflict (operation);

-- The last version of a target as it is known here: reported by executors, or held here.
CREATE TABLE resource (
    target TEXT PRIMARY KEY NOT NULL,
    version BIGINT NOT NULL,
    value TEXT,
    managed BIGINT NOT NULL,
    updated_by TEXT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE TABLE audit (
    seq BIGINT PRIMARY KEY NOT NULL,
    event TEXT NOT NULL,
    operation TEXT,
    at BIGINT NOT NULL,
    record TEXT NOT NULL
);
CREATE INDEX audit_operation ON audit (operation, seq);

-- One row: where the chain ends, and the Merkle tree's peaks.
CREATE TABLE audit_head (
    id BIGINT PRIMARY KEY NOT NULL,
    size BIGINT NOT NULL,
    hash TEXT NOT NULL,
    at BIGINT NOT NULL,
    frontier TEXT NOT NULL
);

CREATE TABLE checkpoint (
    size BIGINT PRIMARY KEY NOT NULL,
    note TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

-- What streams and waiters are woken by; `seq` is the audit record that made it.
CREATE TABLE event (
    seq BIGINT PRIMARY KEY NOT NULL,
    topic TEXT NOT NULL,
    subject TEXT NOT NULL,
    agent TEXT,
    state TEXT NOT NULL,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
