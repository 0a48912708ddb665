-- Signed messages of providers that were taken in: each counts once.

CREATE TABLE provider_message (
    provider TEXT NOT NULL,
    id TEXT NOT NULL,
    received_at BIGINT NOT NULL,
    PRIMARY KEY (provider, id)
);
