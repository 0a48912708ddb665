/** Documents that stories write together, and two agents that meet on one of them. */
import { expect } from "./fixtures.ts";
import { fresh } from "./proposals.ts";
import type { Json, Members, Operation, Person, Run } from "./server.ts";
import { expectStatus } from "./server.ts";

/** What is there before anybody changes it. */
export const policy: Members = {
  severity: "high",
  escalate_after_s: 900,
  dedupe_window_s: 300,
  destinations: ["pager-eu", "ops-mail"],
  quiet_hours: { from: "23:00", to: "06:00" },
  runbook: "https://runbooks.example.test/alerts",
  owner: "on-call",
  enabled: true,
};

/** Creates a document under a fresh name, and says which. */
export async function create(run: Run, approver: Person, value: Json = policy, target = `notification-policy/${fresh("prod")}`): Promise<string> {
  const made = await run.propose({ kind: "resource.create", target, expected_version: 0, params: { value } });
  await approve(approver, made);
  expect((await run.operation(made.id)).state).toBe("succeeded");
  return target;
}

export async function approve(approver: Person, { id }: Operation): Promise<void> {
  await expectStatus(await approver.decide(id, "approve"), 200);
}

export interface Collision {
  target: string;
  /** The write that met something else. */
  loser: Operation;
  /** The write that was there first. */
  winner: Operation;
  conflict: string;
}

/** `loser` plans on version 1; `winner` makes version 2 of it first. */
export async function collide(
  loser: Run,
  winner: Run,
  approver: Person,
  { before = policy, proposed, patch, reason }: { before?: Json; proposed: Json; patch: Members; reason?: string },
): Promise<Collision> {
  const target = await create(winner, approver, before);
  const first = await loser.propose({ kind: "resource.replace", target, expected_version: 1, params: { value: proposed }, ...(reason ? { reason } : {}) });
  const second = await winner.propose({ kind: "resource.update", target, expected_version: 1, params: { patch } });
  await approve(approver, second);
  const ended = await loser.operation(first.id);
  expect(ended.state).toBe("conflicted");
  return { target, loser: ended, winner: second, conflict: ended.conflict?.id ?? "" };
}
