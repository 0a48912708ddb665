import { expect, test } from "./fixtures.ts";
import { fresh, payment, ticket, transition } from "./proposals.ts";
import { Provider } from "./provider.ts";
import { expectStatus, type Operation, type Proposal, type Run } from "./server.ts";

/** Sent, and never answered. */
async function lost(run: Run, approve: (id: string) => Promise<unknown>, proposal: Proposal): Promise<Operation> {
  const operation = await run.propose(proposal);
  await approve(operation.id);
  const claim = await run.claim(operation);
  await run.sent(operation.id, claim);
  return run.outcome(operation.id, claim, { status: "unknown" });
}

test("an unknown outcome says not to retry, and is settled by two people with evidence", { tag: "@phone" }, async ({ page, person, run, signIn, awake, axe }) => {
  const approver = await person("approver");
  const operation = await lost(run, (id) => approver.decide(id, "approve"), payment());
  const word = { finding: "not_applied", kind: "statement", observed_at: new Date().toISOString(), note: "I do not think it left" };
  await run.http.post(`/api/v1/operations/${operation.id}/evidence`, { data: word });

  await signIn(page, await person("operator"));
  await page.goto("/unknown");
  await awake(page);
  await axe(page);
  await page.getByRole("listitem").filter({ hasText: operation.short_code }).getByRole("link").first().click();
  await expect(page.getByRole("heading", { level: 1, name: "Do not retry" })).toBeVisible();
  await awake(page);
  await expect(page.getByText("A sender’s own word never settles an outcome.")).toBeVisible();
  for (const [name, why] of [
    ["Applied", "Off: no evidence says so yet. Record it first."],
    ["Not applied", "Off: no evidence says so yet. Record it first."],
    ["Authorise one try", "Off: no provider has declared what it guarantees."],
    ["Abandon", "Off: only admins may."],
  ] as const) {
    const button = page.getByRole("button", { name, exact: true });
    await expect(button).toBeDisabled();
    await expect(button).toHaveAccessibleDescription(why);
  }
  await axe(page);

  await page.getByText("Add a look-up, receipt or statement").click();
  const form = page.getByRole("form", { name: "Add evidence" });
  await form.getByRole("radio", { name: "Applied", exact: true }).check();
  await form.getByRole("radio", { name: "A receipt" }).check();
  await form.getByLabel("Reference at the provider").fill(operation.id);
  await form.getByLabel("What was found, and where").fill("The provider's dashboard shows it");
  await form.getByRole("button", { name: "Record" }).click();
  await expect(page.locator("[data-toast]")).toContainText("It changes no state by itself");
  await expect(page.getByText("It names the downstream key or the provider’s reference of this one.")).toBeVisible();

  const applied = page.getByRole("form", { name: "It was applied" });
  await applied.getByLabel("A note").fill("Seen in the dashboard");
  await applied.getByRole("button", { name: "Applied" }).click();
  await expect(page.locator("[data-toast]")).toContainText("A second person has to agree");
  await expect(page.getByRole("button", { name: "Applied", exact: true })).toHaveAccessibleDescription(/a second person has to agree/);
  expect((await run.operation(operation.id)).state).toBe("needs_review");
  await axe(page);

  await page.context().clearCookies();
  await signIn(page, await person("admin"));
  await page.goto(`/operations/${operation.id}`);
  await awake(page);
  const agreed = page.getByRole("form", { name: "It was applied" });
  await expect(agreed).toContainText("lin found the same");
  await agreed.getByLabel("A note").fill("Seen too");
  await agreed.getByRole("button", { name: "Applied" }).click();
  await expect(page.getByText(/^Succeeded/).first()).toBeVisible();
  await expect(page.getByText("An operator found so.")).toBeVisible();
  expect((await run.operation(operation.id)).state).toBe("succeeded");
});

test("who is no operator sees the case and why nothing there is theirs", async ({ page, person, run, signIn, awake }) => {
  const approver = await person("approver");
  const operation = await lost(run, (id) => approver.decide(id, "approve"), ticket());
  await signIn(page, approver);
  await page.goto(`/operations/${operation.id}`);
  await awake(page);
  await expect(page.getByRole("button", { name: "Applied", exact: true })).toHaveAccessibleDescription("Off: only operators and admins may.");
  await expect(page.getByRole("form", { name: "Add evidence" })).toHaveCount(0);
  await expect(page.getByText("What was authorised")).toBeVisible();
});

test("a case is taken up and handed over, and once overdue it is seen on every page", { tag: "@phone" }, async ({ page, ownDesk, signIn, awake, axe }) => {
  const { server, approver, run } = await ownDesk();
  const admin = await server.person("root", "admin", []);
  const lin = await server.person("lin", "operator", []);
  await server.person("mira", "operator", []);
  const rules = [{ name: "quick", match: { kind: "ticket.transition" }, require: { review_due_s: 1 } }];
  await expectStatus(await (await admin.api()).post("/api/v1/policies", { data: { rules } }), 201);
  const operation = await lost(run, (id) => approver.decide(id, "approve"), ticket());

  await signIn(page, lin);
  await page.goto(`${server.url}/operations/${operation.id}`);
  await awake(page);
  // The desk may have opened the case by itself before.
  await page.getByText(/^(Take it up|Hand over, or move the due time)$/).click();
  const form = page.getByRole("form", { name: "Owner and due time" });
  await form.getByLabel("Owner").selectOption("mira");
  await form.getByLabel("Due").selectOption("in 4 h");
  await form.getByRole("button", { name: "Save" }).click();
  await expect(page.locator("[data-toast]")).toContainText("The case is with mira, due in");
  await expect(page.getByText("Passing the due time decides nothing.")).toBeVisible();
  await expect(page.getByText("Opened as a case")).toBeVisible();
  await expect(page.getByRole("link", { name: /overdue/ })).toHaveCount(0);

  const late = await lost(run, (id) => approver.decide(id, "approve"), transition());
  await expectStatus(await (await lin.api()).post(`/api/v1/operations/${late.id}/case`, { data: { owner: "lin" } }), 200);
  await expect(async () => {
    await page.goto(`${server.url}/conflicts`);
    await expect(page.getByRole("link", { name: "1 overdue" })).toBeVisible({ timeout: 500 });
  }).toPass();
  await awake(page);
  await axe(page);
  await page.getByRole("link", { name: "1 overdue" }).click();
  await expect(page).toHaveURL(/\/unknown$/);
  const row = page.getByRole("listitem").filter({ hasText: late.short_code });
  await expect(row).toContainText("overdue");
  await expect(row).toContainText("owner admins");
  await axe(page);
  expect((await run.operation(late.id)).state).toBe("needs_review");
  await row.getByRole("link").first().click();
  await awake(page);
  await expect(page.getByText("Overdue for")).toBeVisible();
  await expect(page.getByText("passed on to admins").first()).toBeVisible();
});

test("a later write waits behind an unknown one until an operator lets it past", async ({ page, person, run, signIn, awake, axe }) => {
  const approver = await person("approver");
  const project = fresh("ops");
  const params = { project, title: "Rotate staging certificate" };
  const first = await lost(run, (id) => approver.decide(id, "approve"), { kind: "ticket.create", params });
  const later = await run.propose({ kind: "ticket.create", params: { ...params, title: "Renew it" } });
  await approver.decide(later.id, "approve");
  const refused = await run.http.post(`/api/v1/operations/${later.id}/claim`, { data: { fingerprint: later.fingerprint } });
  expect(refused.status()).toBe(409);

  await signIn(page, await person("operator"));
  await page.goto("/unknown");
  await awake(page);
  await expect(page.getByRole("listitem").filter({ hasText: first.short_code })).toContainText("1 write waits behind it");
  await page.goto(`/operations/${first.id}`);
  await awake(page);
  await page.getByRole("link", { name: new RegExp(later.short_code) }).click();
  await awake(page);
  await page.getByText("Let it past", { exact: true }).first().click();
  await axe(page);
  await page.getByLabel("Why that is safe").fill("Another ticket, whatever became of the first");
  await page.getByRole("button", { name: "Let it past" }).click();
  await expect(page.locator("[data-toast]")).toContainText("It may pass what holds its target.");
  await run.carryOut(later, { status: "succeeded", provider_reference: "TCK-2" });
  // Nobody has declared anything about it, so that the desk has opened a case meanwhile.
  expect((await run.operation(first.id)).state).toBe("needs_review");
});

/** Looks only when it is told to. */
const BY_HAND = { COUNTERFOIL_SWEEP_S: "0" };

test("whoever looks up an unknown outcome finds the effect by its key, and it is settled", { tag: "@phone" }, async ({ page, ownDesk, signIn, awake, axe }) => {
  const { server, approver, run } = await ownDesk(BY_HAND);
  const admin = await server.person("root", "admin", []);
  const lin = await server.person("lin", "operator", []);
  const provider = await Provider.start();
  await provider.declare(admin, "tickets", ["ticket.*"], { title: "Tickets" });
  await provider.prove(admin, "tickets");
  const operation = await lost(run, (id) => approver.decide(id, "approve"), ticket());
  const effect = provider.charge(operation.id);

  await signIn(page, lin);
  await page.goto(`${server.url}/unknown`);
  await awake(page);
  await page.getByRole("listitem").filter({ hasText: operation.short_code }).getByRole("link").first().click();
  await awake(page);
  await expect(page.getByRole("heading", { name: "Why there is no other try" })).toBeVisible();
  await expect(page.getByRole("row").filter({ hasText: "Look-up" })).toContainText("proven");
  await expect(page.getByRole("row").filter({ hasText: "Another try" })).toContainText("the provider has to be asked first");
  await axe(page);
  await page.getByRole("button", { name: "Look up now" }).click();
  await expect(page.locator("[data-toast]")).toContainText("The provider was asked: found by its downstream key");
  await awake(page);
  await expect(page.getByText(/^Succeeded/).first()).toBeVisible();
  await expect(page.getByText(effect.id, { exact: true }).first()).toBeVisible();
  await expect(page.getByText("Counterfoil asked by the downstream key itself, so it is about this one.")).toBeVisible();
  await axe(page);
  expect((await run.operation(operation.id)).outcome?.provider_reference).toBe(effect.id);
  await provider.stop();
});

test("one more try takes an empty look-up and two people, and is claimed once", { tag: "@phone" }, async ({ page, ownDesk, signIn, awake, axe }) => {
  const { server, approver, run } = await ownDesk(BY_HAND);
  const admin = await server.person("root", "admin", []);
  const lin = await server.person("lin", "operator", []);
  const provider = await Provider.start();
  await provider.declare(admin, "tickets", ["ticket.*"], { title: "Tickets", idempotency: "none" });
  await provider.prove(admin, "tickets");
  const operation = await lost(run, (id) => approver.decide(id, "approve"), ticket());
  const address = `${server.url}/operations/${operation.id}`;
  const button = page.getByRole("button", { name: "Authorise one try" });
  const word = (note: string) => page.getByRole("form", { name: "Authorise one more try" }).getByLabel("Why it is justified").fill(note);

  await signIn(page, lin);
  await page.goto(address);
  await awake(page);
  await page.getByText("Take it up", { exact: true }).click();
  await page.getByRole("form", { name: "Owner and due time" }).getByRole("button", { name: "Save" }).click();
  await awake(page);
  await expect(button).toHaveAccessibleDescription("Off: the provider has to be asked first.");
  await page.getByRole("button", { name: "Look up now" }).click();
  await expect(page.locator("[data-toast]")).toContainText("nothing was found under its downstream key");
  await awake(page);
  await expect(button).toBeEnabled();
  await axe(page);
  await word("The provider has nothing under this key");
  await button.click();
  await expect(page.locator("[data-toast]")).toContainText("Your word is recorded. A second person has to agree.");
  await expect(button).toHaveAccessibleDescription(/a second person has to agree/);
  expect((await run.http.post(`/api/v1/operations/${operation.id}/claim`, { data: { fingerprint: operation.fingerprint } })).status()).toBe(409);

  await page.context().clearCookies();
  await signIn(page, approver);
  await page.goto(address);
  await awake(page);
  await expect(page.getByText("lin asked for it")).toBeVisible();
  await word("Asked, and absent");
  await button.click();
  await expect(page.locator("[data-toast]")).toContainText("One more try is authorised. It may be claimed again, once.");
  await awake(page);
  await expect(page.getByRole("heading", { name: "Why another try is justified" })).toBeVisible();
  await axe(page);

  const again = await run.operation(operation.id);
  const claim = await run.claim(again);
  expect(claim.claim_fence).toBe(2);
  await run.sent(operation.id, claim);
  const effect = provider.charge(operation.id);
  await run.outcome(operation.id, claim, { status: "succeeded", provider_reference: effect.id });
  await page.goto(address);
  await awake(page);
  await expect(page.getByText(/^Succeeded/).first()).toBeVisible();
  await expect(page.getByText("One more try licensed:")).toBeVisible();
  expect(provider.effects.filter(({ key }) => key === operation.id)).toHaveLength(1);
  await provider.stop();
});
