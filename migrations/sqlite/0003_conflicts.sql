-- What lists and counts need beside the record of a conflict: `agent` is whose write was refused, `met_agent` whose
-- change it met.
ALTER TABLE conflict ADD COLUMN kind TEXT NOT NULL DEFAULT '';
ALTER TABLE conflict ADD COLUMN code TEXT NOT NULL DEFAULT 'stale_version';
ALTER TABLE conflict ADD COLUMN state TEXT NOT NULL DEFAULT 'open';
ALTER TABLE conflict ADD COLUMN met_agent TEXT;
UPDATE conflict SET kind = (SELECT o.kind FROM operation o WHERE o.id = conflict.operation);
UPDATE conflict SET code = 'business_key_conflict' WHERE record LIKE '%"code":"business_key_conflict"%';
UPDATE conflict SET code = 'invariant_violated' WHERE record LIKE '%"code":"invariant_violated"%';
CREATE INDEX conflict_state ON conflict (state, id);
CREATE INDEX conflict_agent ON conflict (agent, id);

-- The conflict that an event about an operation is about as well, and where it stands.
ALTER TABLE event ADD COLUMN conflict TEXT;
ALTER TABLE event ADD COLUMN conflict_state TEXT;
