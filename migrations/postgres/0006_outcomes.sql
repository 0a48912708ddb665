-- What evidence shows, kept apart from it so that it can be erased.

CREATE TABLE evidence_body (
    evidence TEXT PRIMARY KEY NOT NULL REFERENCES evidence (id),
    body TEXT NOT NULL
);

-- Signed messages of providers that were taken in: each counts once.

CREATE TABLE provider_message (
    provider TEXT NOT NULL,
    id TEXT NOT NULL,
    received_at BIGINT NOT NULL,
    PRIMARY KEY (provider, id)
);
