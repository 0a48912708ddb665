import { randomUUID } from "node:crypto";
import { expect, test } from "./fixtures.ts";
import { fresh, payment, release, ticket, transition } from "./proposals.ts";
import { addRule } from "./rules.ts";
import { expectStatus, type Members, type Proposal } from "./server.ts";

/** A document of any shape: what is stored here is never carried out. */
const note = (value: Members): Proposal => ({ kind: "resource.create", target: `note/${fresh("n")}`, expected_version: 0, params: { value } });

test("however long the content is, all of it can be read, and Approve waits until it was unfolded", { tag: "@phone" }, async ({ page, person, run, signIn, awake, axe, javaScriptEnabled }) => {
  test.slow();
  const operation = await run.propose(
    note({
      text: `harmless ${"and so on, ".repeat(450)}drop the table`,
      line: "x".repeat(40_000),
      many: Array.from({ length: 500 }, (_, i) => i),
      lines: Array.from({ length: 60 }, (_, i) => `line ${i}`).join("\n"),
    }),
  );
  await signIn(page, await person("approver"));
  await page.setViewportSize({ width: 360, height: 780 });
  await page.goto(`/operations/${operation.id}`);
  await awake(page);
  await axe(page);
  await expect(page.locator("summary", { hasText: "500 values in many" })).toBeVisible();
  await expect(page.locator("summary", { hasText: "40,000 characters" })).toBeVisible();
  await expect(page.locator("summary", { hasText: /characters in 60 lines/ })).toBeVisible();
  await expect(page.locator("[data-fingerprint]").first()).toContainText(operation.fingerprint.slice(7, 15));

  const approve = page.getByRole("button", { name: /^Approve/ });
  const folds = page.locator("[data-content] details");
  const count = await folds.count();
  if (javaScriptEnabled !== false) {
    await expect(page.locator(".match", { hasText: "Matches what you see" })).toBeVisible();
    await expect(approve).toBeDisabled();
    await expect(approve).toHaveAccessibleDescription(`Off until all of the content was unfolded: ${count} parts are left.`);
  }
  for (let i = 0; i < count; i++) {
    await folds.nth(i).locator("summary").first().focus();
    await page.keyboard.press("Enter");
  }
  await expect(page.getByText("drop the table").first()).toBeVisible();
  await expect(page.locator("[data-content]").getByText("499", { exact: true }).first()).toBeVisible();
  await expect(approve).toBeEnabled();
  const width = await page.evaluate(() => document.documentElement.scrollWidth).catch(() => 360);
  expect(width, "nothing is wider than the screen").toBeLessThanOrEqual(360);

  const huge = await run.tryPropose(note({ text: "x".repeat(2_000_000) }));
  expect(huge.status()).toBe(413);
});

test("the browser's own fingerprint is the server's for every kind", { tag: "@scripts" }, async ({ page, person, run, signIn }) => {
  const first = await run.propose(release());
  const destination = fresh("tracker");
  const declared = { name: destination, title: "Tracker", idempotency: "none", lookup: "none", max_in_flight_s: "unbounded", fences: false };
  const admin = await (await person("admin")).api();
  const reached = { ...declared, destination: { base_url: "https://tracker.example.test" } };
  await expectStatus(await admin.post("/api/v1/providers", { data: reached }), 201);
  const proposals: Proposal[] = [
    { ...ticket(), source_event_id: `alert-${fresh("a")}` },
    { kind: "ticket.comment", params: { ticket: fresh("OPS"), comment_id: "c1", body: "Two\nlines\r\nand a tab\t." } },
    transition(),
    payment(),
    { kind: "payment.capture", params: { order: fresh("order"), authorization: fresh("auth"), amount_minor: 14900, currency: "EUR" } },
    { kind: "payment.refund", params: { order: fresh("order"), original_transaction: "txn_1", amount_minor: 1, currency: "JPY", refund_reason: "" } },
    { ...release(), supersedes: first.id },
    note({ deep: { list: [1, [true, null, {}], []], "a/b~c": "" }, "": "empty name", "é😀": -9007199254740991 }),
    { kind: "user.invite", params: { email: `${fresh("nika")}@example.test`, role: "reader", workspace: "desk" } },
    { kind: "credential.delete", expected_version: 3, params: { system: fresh("billing"), credential: "key-07" } },
    { kind: "http.request", target: `call/${fresh("c")}`, params: { destination, method: "POST", path: "/a", query: { q: "1 2" }, body: { x: [0] } } },
  ];
  await signIn(page, await person("approver"));
  for (const proposal of proposals) {
    const operation = await run.propose(proposal);
    await page.goto(`/operations/${operation.id}`);
    await expect(page.locator(".match", { hasText: "Matches what you see" }), proposal.kind).toBeVisible();
  }
});

/** Ways to show something else than was proposed. */
const TAMPERED: [what: string, change: (html: string) => string][] = [
  ["a value", (html: string) => html.replace(/(data-value[^>]*>)checkout-api/, "$1checkout-apj")],
  ["a name", (html: string) => html.replace(/(data-name[^>]*>)service</, "$1servjce<")],
  ["the canonical JSON", (html: string) => html.replace(/(data-canonical[^]*)checkout-api/, "$1checkout-apj")],
  ["a row too many", (html: string) => html.replace(/<tr class="sub"><th colspan="3" scope="rowgroup">envelope/, '<tr data-type="text" data-depth="1"><th><bdi data-name="">dry_run</bdi></th><td><bdi data-value="">yes</bdi></td></tr>$&')],
  ["the number", (html: string) => html.replace(/(data-number[^>]*>)[0-9a-f]{4}-/, "$1ffff-")],
  ["the fingerprint that is sent", (html: string) => html.replace(/name="fingerprint"([^>]*)value="sha256:[0-9a-f]{4}/g, 'name="fingerprint"$1value="sha256:ffff')],
];

test("a page on which anything was changed cannot be approved", { tag: "@scripts" }, async ({ page, person, run, signIn, awake, axe }) => {
  const operation = await run.propose(release());
  const address = `**/operations/${operation.id}`;
  await signIn(page, await person("approver"));
  for (const [what, change] of TAMPERED) {
    await page.route(address, async (route) => {
      const reply = await route.fetch();
      const html = await reply.text();
      const changed = change(html);
      expect(changed, "the page was changed").not.toBe(html);
      await route.fulfill({ response: reply, body: changed });
    });
    await page.goto(`/operations/${operation.id}`);
    await awake(page);
    await expect(page.getByRole("heading", { name: "What you see is not what was proposed" }), what).toBeVisible();
    await expect(page.getByText("Does not match what you see"), what).toBeVisible();
    await page.getByLabel(/^Target/).fill(operation.target);
    const approve = page.getByRole("button", { name: /^Approve/ });
    await expect(approve, what).toBeDisabled();
    await expect(approve, what).toHaveAccessibleDescription("Off: what you see is not what was proposed.");
    await page.unroute(address);
  }
  await axe(page);
  expect((await run.operation(operation.id)).state).toBe("pending");
});

test("a page changed after it was checked is checked again before anything is sent", { tag: "@scripts" }, async ({ page, person, run, signIn, awake }) => {
  const operation = await run.propose(ticket());
  await signIn(page, await person("approver"));
  await page.goto(`/operations/${operation.id}`);
  await awake(page);
  await expect(page.locator(".match", { hasText: "Matches what you see" })).toBeVisible();
  await page.locator("[data-value]").first().evaluate((value) => (value.textContent = "ops-elsewhere"));
  await page.getByRole("button", { name: /^Approve/ }).click();
  await expect(page.getByRole("heading", { name: "What you see is not what was proposed" })).toBeVisible();
  expect((await run.operation(operation.id)).state).toBe("pending");
});

test("what is proposed stands against what is there", { tag: "@phone" }, async ({ page, person, run, signIn, awake, axe }) => {
  const environment = fresh("prod");
  const first = await run.propose(release({ environment, commit: "d3".repeat(20) }));
  await (await person("approver")).decide(first.id, "approve");
  await run.carryOut(first, { status: "succeeded", provider_reference: "deploy-91", resulting_version: 42 });
  const second = await run.propose({ ...release({ environment, commit: "b4".repeat(20) }), expected_version: 42 });
  await signIn(page, await person("approver"));
  await page.goto(`/operations/${second.id}`);
  await awake(page);
  const table = page.getByRole("region", { name: "Against what is there" });
  await expect(table).toContainText("2 of 4 fields change.");
  await expect(table).toContainText("version 42, reported");
  await expect(table.getByRole("row", { name: /commit/ })).toContainText("d3".repeat(20));
  await expect(table.getByRole("row", { name: /commit/ })).toContainText("b4".repeat(20));
  await axe(page);
});

test("nobody approves their own agent's work, and the page says so", async ({ page, person, run, signIn, awake, axe }) => {
  const operation = await run.propose(ticket());
  await signIn(page, await person("viewer"));
  await page.goto(`/operations/${operation.id}`);
  await awake(page);
  await expect(page.getByRole("heading", { name: /^You own deployer-/ })).toBeVisible();
  const approve = page.getByRole("button", { name: /^Approve/ });
  await expect(approve).toBeDisabled();
  await expect(approve).toHaveAccessibleDescription("Off: you own this agent.");
  await axe(page);
  await page.getByRole("radio", { name: "Stale plan" }).check();
  await page.getByRole("button", { name: "Reject" }).click();
  await expect(page.locator("[data-toast]")).toContainText("Rejected: stale plan");
});

test("who may not vote reads everything and finds no form", async ({ page, person, run, signIn, awake, axe }) => {
  const operation = await run.propose(ticket());
  await signIn(page, await person("auditor"));
  await page.goto(`/operations/${operation.id}`);
  await awake(page);
  await expect(page.getByRole("heading", { name: "Not yours to decide" })).toBeVisible();
  await expect(page.getByRole("button", { name: /^(Approve|Reject)/ })).toHaveCount(0);
  await axe(page);
});

test("a vote is withdrawn while the approval is unspent, and an operator cancels", { tag: "@phone" }, async ({ page, person, run, signIn, awake, axe }) => {
  const operation = await run.propose(ticket());
  await (await person("approver")).decide(operation.id, "approve");
  await signIn(page, await person("approver"));
  await page.goto(`/operations/${operation.id}`);
  await awake(page);
  await axe(page);
  await page.getByRole("button", { name: "Withdraw your vote" }).click();
  await expect(page.locator("[data-toast]")).toContainText("withdrawn");
  expect((await run.operation(operation.id)).state).toBe("pending");
  await expect(page.getByText(/withdrawn \d/).first()).toBeVisible();

  await page.getByRole("button", { name: /Sign out/ }).locator("visible=true").or(page.locator(".menu summary").locator("visible=true")).first().click();
  const signOut = page.getByRole("button", { name: /Sign out/ }).locator("visible=true");
  if (await signOut.count()) await signOut.first().click();
  await signIn(page, await person("operator"));
  await page.goto(`/operations/${operation.id}`);
  await awake(page);
  await page.getByText("Cancel it instead").click();
  await page.getByLabel("Reason", { exact: true }).fill("the plan changed");
  await page.getByRole("button", { name: "Cancel the operation" }).click();
  await expect(page.locator("[data-toast]")).toContainText("Cancelled");
  await expect(page.getByText(/lin cancelled this at/)).toBeVisible();
  await expect(page.getByText("the plan changed").first()).toBeVisible();
  expect((await run.operation(operation.id)).state).toBe("cancelled");
  await axe(page);
});

test("two votes are two people, and the first one waits for the second", { tag: "@phone" }, async ({ page, person, run, signIn, awake, axe }) => {
  const proposal = ticket();
  const target = `project/${proposal.params.project}`;
  await addRule(await person("admin"), { name: fresh("two people"), match: { target }, require: { approvals: 2 } });
  const operation = await run.propose(proposal);
  await signIn(page, await person("approver"));
  await page.goto(`/operations/${operation.id}`);
  await awake(page);
  await expect(page.getByText("After yours, it waits for 1 more vote.")).toBeVisible();
  await page.getByRole("button", { name: /^Approve/ }).click();
  await expect(page.locator("[data-toast]")).toContainText("Still to come: 1 more vote.");
  await expect(page.getByText("Pending, 1 of 2 votes")).toBeVisible();
  await expect(page.getByRole("heading", { name: "You approved this" })).toBeVisible();
  await axe(page);
  await (await person("operator")).decide(operation.id, "approve");
  await page.goto(`/operations/${operation.id}`);
  await expect(page.getByText(/^Approved/).first()).toBeVisible();
});

test.describe("refused", () => {
  test.use({ tolerate: [[/412/, /403/, /409/], { scope: "test" }] });

  test("a vote on a page older than the operation is not counted, and what was written is kept", async ({ page, person, run, signIn, awake, axe }) => {
    const proposal = ticket();
    const operation = await run.propose(proposal);
    await signIn(page, await person("approver"));
    await page.goto(`/operations/${operation.id}`);
    await awake(page);
    await run.propose(proposal, randomUUID());
    await page.getByRole("radio", { name: "Duplicate" }).check();
    await page.getByLabel("Note").fill("It looked like a duplicate");
    await page.getByRole("button", { name: "Reject" }).click();
    await expect(page.getByText(/page (is|was) older than the operation/)).toBeVisible();
    expect((await run.operation(operation.id)).state).toBe("pending");
    await axe(page);
    const afresh = page.locator("#decide").getByRole("link", { name: "Show what is new" });
    if (await afresh.count()) await afresh.click();
    await expect(page.getByText("The same command is open already")).toBeVisible();
    await expect(page.getByLabel("Note")).toHaveValue("It looked like a duplicate");
  });

  test("where the rule says so, the password is entered again before the vote counts", { tag: "@phone" }, async ({ page, person, run, signIn, awake, axe }) => {
    const proposal = release();
    const target = `release/${proposal.params.environment}`;
    await addRule(await person("admin"), { name: fresh("password again"), match: { target }, require: { step_up: true } });
    const operation = await run.propose(proposal);
    const asha = await person("approver");
    await signIn(page, asha);
    await page.goto(`/operations/${operation.id}`);
    await awake(page);
    await page.getByLabel(/^Target/).fill(operation.target);
    await page.getByRole("button", { name: /^Approve/ }).click();
    await expect(page.getByRole("heading", { level: 1, name: "Your password again" })).toBeVisible();
    await axe(page);
    await page.getByLabel(/^Password, to approve critical work/).fill("not the password");
    await page.getByRole("button", { name: /^Approve/ }).click();
    await expect(page.getByText("That is not the password. Nothing was decided.")).toBeVisible();
    expect((await run.operation(operation.id)).state).toBe("pending");
    await page.getByLabel(/^Password, to approve critical work/).fill(asha.password);
    await page.getByRole("button", { name: /^Approve/ }).click();
    await expect(page.locator("[data-toast]")).toContainText("Approved");
    expect((await run.operation(operation.id)).state).toBe("approved");
  });
});

test("a pause and a hold are told where the decision is made", { tag: "@phone" }, async ({ page, person, run, signIn, awake, axe }) => {
  const lost = await run.propose(payment());
  await (await person("approver")).decide(lost.id, "approve");
  const claim = await run.claim(lost);
  await run.sent(lost.id, claim);
  await run.outcome(lost.id, claim, { status: "unknown" });
  const next = await run.propose({ kind: "payment.refund", params: { order: lost.target.slice(6), original_transaction: "txn_1", amount_minor: 1, currency: "EUR" } });
  const admin = await (await person("admin")).api();
  await admin.post("/api/v1/pause", { data: { reason: "Looking into it" } });
  try {
    await signIn(page, await person("approver"));
    await page.goto(`/operations/${next.id}`);
    await awake(page);
    await expect(page.getByText(/^admin paused the desk at/)).toBeVisible();
    await expect(page.getByText("Looking into it")).toBeVisible();
    await expect(page.getByRole("heading", { name: `${next.target} is on hold` })).toBeVisible();
    await axe(page);
  } finally {
    await admin.delete("/api/v1/pause");
  }
});

test("a stale write says what is there now, and offers no decision", { tag: "@phone" }, async ({ page, person, run, signIn, awake, axe }) => {
  const environment = fresh("prod");
  const first = await run.propose(release({ environment }));
  await (await person("approver")).decide(first.id, "approve");
  await run.carryOut(first, { status: "succeeded", provider_reference: "deploy-1", resulting_version: 42 });
  const stale = await run.tryPropose(release({ environment }));
  expect(stale.status()).toBe(412);
  const { operation } = (await stale.json()) as { operation: { id: string } };
  await signIn(page, await person("approver"));
  await page.goto(`/operations/${operation.id}`);
  await awake(page);
  await expect(page.getByText(/^Conflicted/).first()).toBeVisible();
  await expect(page.getByRole("heading", { name: "It no longer fits what is there" })).toBeVisible();
  await expect(page.getByText(/42/).first()).toBeVisible();
  await expect(page.getByRole("button", { name: /^(Approve|Reject)/ })).toHaveCount(0);
  await axe(page);
});

test("what waits for the reader is one step away", async ({ page, person, run, signIn, awake }) => {
  const [first, second] = [await run.propose(ticket()), await run.propose(ticket())];
  await signIn(page, await person("approver"));
  await page.goto(`/operations/${first.id}`);
  await awake(page);
  const place = page.getByRole("navigation", { name: "Place in the queue" });
  await expect(place).toContainText(/\d+ of \d+/);
  await place.getByRole("link", { name: "Next" }).click();
  await expect(page).toHaveURL(new RegExp(second.id));
});
