import type { APIRequestContext } from "@playwright/test";
import { expect, test } from "./fixtures.ts";
import { fresh } from "./proposals.ts";
import { Provider } from "./provider.ts";
import { expectStatus, type Proposal } from "./server.ts";

const SECRET = "sk_live_planted_credential";

const charge = (): Proposal => ({
  kind: "http.request",
  target: `charge/${fresh("c")}`,
  params: { destination: "payments", method: "POST", path: "/charges", body: { amount_minor: 14900 } },
});

test("a provider is added, proven and sent to, and a lost reply is settled by asking it", { tag: "@phone" }, async ({ page, ownDesk, signIn, awake, axe }) => {
  // The desk asks only when somebody tells it to.
  const { server, approver, run } = await ownDesk({ COUNTERFOIL_SWEEP_S: "0" });
  const admin = await server.person("root", "admin", []);
  const lin = await server.person("lin", "operator", []);
  const provider = await Provider.start();
  const declared = provider.declaration("payments", []);
  declared.destination = { ...(declared.destination as object), credential_header: "Authorization" };

  await signIn(page, admin);
  await page.goto(`${server.url}/settings/providers`);
  await awake(page);
  await expect(page.getByText("No providers yet")).toBeVisible();
  await page.getByRole("link", { name: "Add a provider" }).click();
  await awake(page);
  await axe(page);
  await page.getByLabel("The document").fill(JSON.stringify(declared, null, 2));
  await page.getByRole("button", { name: "Declare" }).click();
  await awake(page);
  await expect(page.getByText("declared, never proven")).toHaveCount(2);
  await page.getByLabel("Its value, sealed and never shown again").fill(`Bearer ${SECRET}`);
  await page.getByRole("button", { name: "Keep" }).click();
  await awake(page);
  await expect(page.getByText("kept, sealed")).toBeVisible();
  await page.getByRole("button", { name: "Check" }).click();
  await awake(page);
  const proofs = page.getByRole("definition").filter({ hasText: "proven" });
  await expect(proofs).toHaveCount(2);
  const today = new Date().toISOString().slice(0, 10);
  for (const proof of await proofs.all()) await expect(proof.getByRole("time")).toHaveAttribute("datetime", new RegExp(`^${today}`));
  await axe(page);
  await page.goto(`${server.url}/settings/providers`);
  await awake(page);
  await expect(page.getByRole("row").filter({ hasText: "payments" })).toContainText("go out");
  await axe(page);

  provider.losesReplies = true;
  const operation = await run.propose(charge());
  await expectStatus(await approver.decide(operation.id, "approve"), 200);
  await expect.poll(async () => (await run.operation(operation.id)).state).toBe("unknown");
  const made = provider.effects.filter(({ key }) => key === operation.id);
  expect(made.map(({ authorization }) => authorization)).toEqual([`Bearer ${SECRET}`]);

  await page.context().clearCookies();
  await signIn(page, lin);
  await page.goto(`${server.url}/unknown`);
  await awake(page);
  await axe(page);
  await page.getByRole("listitem").filter({ hasText: operation.short_code }).getByRole("link").first().click();
  await awake(page);
  await expect(page.getByRole("heading", { level: 1, name: "Do not retry" })).toBeVisible();
  await axe(page);
  await page.getByRole("button", { name: "Look up now" }).click();
  await expect(page.locator("[data-toast]")).toContainText("The provider was asked: found by its downstream key");
  await awake(page);
  await expect(page.getByText(/^Succeeded/).first()).toBeVisible();
  await expect(page.getByText(made[0]?.id ?? "none", { exact: true }).first()).toBeVisible();
  await expect(page.getByText("Counterfoil asked by the downstream key itself, so it is about this one.")).toBeVisible();
  await axe(page);
  expect(provider.effects.filter(({ key }) => key === operation.id)).toHaveLength(1);

  await page.context().clearCookies();
  await signIn(page, admin);
  const paths = ["", "unknown", "settings/providers", "settings/providers/payments", "settings/providers/payments/edit", `operations/${operation.id}`, "audit", "on-call"];
  for (const path of paths) {
    await page.goto(`${server.url}/${path}`);
    expect(await page.content(), path).not.toContain("planted");
  }
  const api = await admin.api();
  const read = async (http: APIRequestContext, path: string) => {
    const reply = await http.get(path);
    expect(reply.status(), path).toBe(200);
    expect(await reply.text(), path).not.toContain("planted");
  };
  for (const path of ["providers", "providers/payments", `operations/${operation.id}`, `operations/${operation.id}/review`, `operations/${operation.id}/evidence`, "audit/export"]) {
    await read(api, `/api/v1/${path}`);
  }
  await read(run.http, `/api/v1/operations/${operation.id}`);
  expect(server.log()).not.toContain("planted");
  await provider.stop();
});

test("a lost reply that nobody settles in time is overdue on every page, and stays unsettled", { tag: "@phone" }, async ({ page, ownDesk, signIn, awake, axe }) => {
  const { server, approver, run } = await ownDesk();
  const admin = await server.person("root", "admin", []);
  const lin = await server.person("lin", "operator", []);
  const rules = [{ name: "quick", match: { kind: "http.request" }, require: { review_due_s: 1, review_owner: "lin" } }];
  await expectStatus(await (await admin.api()).post("/api/v1/policies", { data: { rules } }), 201);
  const provider = await Provider.start();
  await provider.declare(admin, "payments", [], { idempotency: "none", lookup: "none" });
  provider.losesReplies = true;
  const operation = await run.propose(charge());
  await expectStatus(await approver.decide(operation.id, "approve"), 200);
  await expect.poll(async () => (await run.operation(operation.id)).state).toBe("needs_review");

  await signIn(page, lin);
  await expect(async () => {
    await page.goto(`${server.url}/on-call`);
    await expect(page.getByRole("link", { name: "1 overdue" })).toBeVisible({ timeout: 500 });
  }).toPass();
  await awake(page);
  await page.getByRole("link", { name: "1 overdue" }).click();
  await awake(page);
  const row = page.getByRole("listitem").filter({ hasText: operation.short_code });
  await expect(row).toContainText("owner admins");
  await axe(page);
  await row.getByRole("link").first().click();
  await awake(page);
  await expect(page.getByText("Overdue for")).toBeVisible();
  await expect(page.getByText("passed on to admins").first()).toBeVisible();
  await axe(page);
  expect((await run.operation(operation.id)).state).toBe("needs_review");
  expect(provider.effects).toHaveLength(1);
  await provider.stop();
});
