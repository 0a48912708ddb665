/** Proposals the stories make. Targets carry a fresh name, so that stories on one server do not meet. */
import { randomBytes, randomUUID } from "node:crypto";
import type { Members, Proposal } from "./server.ts";

export const fresh = (prefix: string): string => `${prefix}-${randomBytes(4).toString("hex")}`;

const digest = (): string => `sha256:${randomBytes(32).toString("hex")}`;

/** Low risk. */
export const ticket = (title = "Rotate staging certificate"): Proposal => ({
  kind: "ticket.create",
  params: { project: fresh("ops"), title },
});

/** Medium risk. */
export const transition = (): Proposal => ({
  kind: "ticket.transition",
  params: { ticket: fresh("OPS"), from: "open", to: "closed" },
});

/** High risk: the target is typed. */
export const payment = (): Proposal => ({
  kind: "payment.authorize",
  params: { order: fresh("order"), payee: "Parts supplier", amount_minor: 14900, currency: "EUR", invoice: `INV-${randomUUID().slice(0, 8)}` },
});

/** Critical, because the environment starts with `prod`: the target is typed. */
export const release = (params: Members = {}): Proposal => ({
  kind: "deployment.release",
  expected_version: 41,
  params: { environment: fresh("prod"), service: "checkout-api", artifact: digest(), ...params },
});
