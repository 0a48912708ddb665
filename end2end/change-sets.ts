/** Change sets that stories open, and what a story does with their steps. */
import { randomUUID } from "node:crypto";
import { expect } from "./fixtures.ts";
import { fresh } from "./proposals.ts";
import { approve } from "./resources.ts";
import { expectStatus, type Members, type Operation, type Person, type Proposal, type Run } from "./server.ts";

export interface ChangeSet {
  id: string;
  title: string;
  state: string;
  steps: Record<"operation" | "compensated_by", { id: string; state: string } | null>[];
}

export const refund = (): Proposal => ({
  kind: "payment.refund",
  params: { order: fresh("order"), original_transaction: "ch_1", amount_minor: 1900, currency: "EUR" },
});

export const comment = (id: string): Proposal => ({
  kind: "ticket.comment",
  params: { ticket: "OPS-1", comment_id: id, body: "The money is on its way" },
});

/** A ticket whose compensation closes another one. */
export const reversible = (title: string): Proposal => ({
  kind: "ticket.create",
  params: { project: fresh("ops"), title },
  compensation: { kind: "ticket.transition", params: { ticket: fresh("OPS"), from: "open", to: "closed" } },
});

export async function openSet(run: Run, title: string, steps: Proposal[]): Promise<ChangeSet> {
  const headers = { "Idempotency-Key": randomUUID() };
  const reply = await run.http.post("/api/v1/change-sets", { data: { title, steps }, headers });
  return (await expectStatus<{ change_set: ChangeSet }>(reply, 201)).change_set;
}

export async function redo(run: Run, { id }: ChangeSet, members: Members): Promise<void> {
  await expectStatus(await run.http.post(`/api/v1/change-sets/${id}/redo`, { data: members }), 200);
}

/** The operation of a step, from 1, or what undoes it, once the desk has proposed it. */
export async function part(run: Run, { id }: ChangeSet, step: number, name: keyof ChangeSet["steps"][number] = "operation"): Promise<Operation> {
  let found: string | undefined;
  await expect
    .poll(async () => {
      const reply = await run.http.get(`/api/v1/change-sets/${id}`);
      const { change_set } = await expectStatus<{ change_set: ChangeSet }>(reply, 200);
      found = change_set.steps[step - 1]?.[name]?.id;
      return found;
    })
    .toBeDefined();
  return run.operation(found ?? "");
}

/** Approves it and carries it out. */
export async function finish(run: Run, approver: Person, operation: Operation, outcome: Members): Promise<void> {
  await approve(approver, operation);
  await run.carryOut(operation, outcome);
}

/** Waits until the desk has noticed what became of its operations. */
export async function becomes(run: Run, { id }: ChangeSet, state: string): Promise<void> {
  await expect
    .poll(async () => {
      const reply = await run.http.get(`/api/v1/change-sets/${id}`);
      return (await expectStatus<{ change_set: ChangeSet }>(reply, 200)).change_set.state;
    })
    .toBe(state);
}
