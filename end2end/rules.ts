/** Rules of the policy that a story needs beside those in force. */
import type { Members, Person } from "./server.ts";
import { expectStatus } from "./server.ts";

/** Puts a rule before all others. */
export async function addRule(admin: Person, rule: Members): Promise<void> {
  const api = await admin.api();
  const { policy } = await expectStatus<{ policy: { rules: Members[] } }>(await api.get("/api/v1/policies"), 200);
  await expectStatus(await api.post("/api/v1/policies", { data: { rules: [rule, ...policy.rules] } }), 200, 201);
}
