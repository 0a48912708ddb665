-- Ordered writes that belong together. `awaits` is the operation that decides what is next, and `seen` its version when
-- it was last looked at; without one, the next is tried at `due_at`.
CREATE TABLE change_set (
    id TEXT PRIMARY KEY NOT NULL,
    agent TEXT NOT NULL REFERENCES agent (id),
    idempotency_key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    state TEXT NOT NULL,
    version BIGINT NOT NULL,
    awaits TEXT REFERENCES operation (id),
    seen BIGINT NOT NULL,
    due_at BIGINT,
    document TEXT NOT NULL
);
CREATE UNIQUE INDEX change_set_key ON change_set (agent, idempotency_key);
CREATE INDEX change_set_state ON change_set (state, due_at);

-- Every operation that a set has proposed, also those that another one has taken the place of.
CREATE TABLE change_set_operation (
    operation TEXT NOT NULL REFERENCES operation (id),
    change_set TEXT NOT NULL REFERENCES change_set (id),
    place TEXT NOT NULL,
    PRIMARY KEY (operation, change_set)
);
CREATE INDEX change_set_operation_set ON change_set_operation (change_set, operation);

-- Operations that make good for others. `seen` is the version of the first when the second was last told.
CREATE TABLE compensation (
    operation TEXT PRIMARY KEY NOT NULL REFERENCES operation (id),
    compensates TEXT NOT NULL REFERENCES operation (id),
    seen BIGINT NOT NULL
);
CREATE INDEX compensation_compensates ON compensation (compensates, operation);
