-- The destination to which Counterfoil itself sends an operation; empty for what others carry out.
ALTER TABLE operation ADD COLUMN gateway TEXT;
CREATE INDEX operation_gateway ON operation (gateway, state, deadline_at) WHERE gateway IS NOT NULL;
