import type { Page } from "@playwright/test";
import { expect, test } from "./fixtures.ts";
import { fresh } from "./proposals.ts";
import { type Collision, approve, collide, create, policy } from "./resources.ts";
import type { Members } from "./server.ts";

/** A wider window, one destination more, and a slower escalation: planned on version 1. */
const wider: Members = { ...policy, dedupe_window_s: 600, escalate_after_s: 1800, destinations: ["pager-eu", "ops-mail", "pager-apac"] };
/** What somebody else changes meanwhile. */
const raised: Members = { severity: "critical", escalate_after_s: 600 };

const row = (page: Page, { loser }: Collision) => page.getByRole("listitem").filter({ hasText: loser.short_code });
const told = (page: Page) => page.locator("[data-toast]");

test("a stale write is read in three versions, planned anew, and lands with both changes @phone", async ({ page, server, person, run, signIn, awake, axe }) => {
  test.slow();
  const [asha, lin] = [await person("approver"), await person("operator")];
  const other = await (await server.agent(fresh("noise-filter"), (await person("viewer")).name)).run();
  const met = await collide(run, other, asha, { proposed: wider, patch: raised, reason: "Alerts fire twice for one incident." });

  await signIn(page, lin);
  await page.goto("/conflicts");
  await awake(page);
  await axe(page);
  await expect(row(page, met)).toContainText("1 ≠ 2");
  await row(page, met).getByRole("link").first().click();

  const heading = page.getByRole("heading", { level: 1 });
  await expect(heading).toContainText(`wanted to replace ${met.target} as it was at version 1. It is at version 2.`);
  await expect(page.getByText(/changed 2 fields while this waited\. The write would have overwritten all of them\./)).toBeVisible();
  await awake(page);
  const table = page.getByRole("region", { name: "Three readings of one document" });
  const fields = table.locator("tr > th[scope=row]");
  await expect(fields.nth(0)).toHaveText(/escalate_after_s|severity/);
  await expect(fields.nth(1)).toHaveText(/escalate_after_s|severity/);
  await expect(table.getByRole("row", { name: /^severity/ })).toContainText('"critical"');
  await expect(table.getByText("would have put it back").first()).toBeVisible();
  await expect(table.getByText("Pulled both ways.").first()).toBeVisible();
  await expect(table.getByRole("link", { name: met.winner.short_code }).first()).toBeVisible();
  await expect(table.getByText("approved by asha").first()).toBeVisible();
  await expect(table.getByText(/Only the proposal/)).toContainText("2 fields");
  await expect(table.getByText(/Same in all three/)).toContainText("4 fields");
  await axe(page);

  await table.getByRole("link", { name: "Unified" }).click();
  await expect(page).toHaveURL(/view=unified/);
  await expect(table.getByRole("row", { name: /^severity/ })).toContainText('"critical"');
  await axe(page);
  await table.getByRole("link", { name: "Side by side" }).click();

  const replan = page.getByRole("form", { name: "Re-plan" });
  await replan.getByLabel("Instruction to the agent").fill("Keep severity and escalation. Propose only the window and pager-apac, as an update.");
  await replan.getByRole("button", { name: "Ask for a new plan" }).click();
  await expect(told(page)).toContainText("Asked for a new plan");
  await expect(page.getByText("It has not proposed anew yet.")).toBeVisible();
  await axe(page);

  const read = await run.operation(met.loser.id);
  expect(JSON.stringify(read)).toContain("Propose only the window");
  const patch = { dedupe_window_s: 600, destinations: ["pager-eu", "ops-mail", "pager-apac"] };
  const again = await run.propose({ kind: "resource.update", target: met.target, expected_version: 2, params: { patch }, replans: met.loser.id });

  await page.goto(`/conflicts/${met.conflict}`);
  await expect(page.getByRole("heading", { name: "What is different from the plan you saw" })).toBeVisible();
  await expect(page.getByRole("row", { name: /^expected_version/ })).toContainText("2");
  await axe(page);
  await page.getByRole("link", { name: /Open the new plan/ }).click();
  await awake(page);
  await expect(page.getByRole("heading", { name: "What is different from the plan you saw" })).toBeVisible();
  await expect(page.getByRole("link", { name: met.loser.short_code }).or(page.getByText(met.loser.id)).first()).toBeVisible();
  await axe(page);
  await page.getByRole("button", { name: /^Approve/ }).click();
  await expect(told(page)).toContainText("Approved");
  expect((await run.operation(again.id)).state).toBe("succeeded");

  await page.goto(`/resources/${met.target}`);
  await awake(page);
  await expect(page.getByText("It is at version 3.")).toBeVisible();
  const content = page.getByRole("region", { name: "What it says now" });
  await expect(content.getByRole("row", { name: /^severity/ })).toContainText("critical");
  await expect(content.getByRole("row", { name: /^dedupe_window_s/ })).toContainText("600");
  const history = page.getByRole("region", { name: "How it came to be" });
  await expect(history.getByRole("listitem").filter({ hasText: again.short_code })).toContainText("dedupe_window_s");
  await expect(history.getByRole("listitem").filter({ hasText: met.winner.short_code })).toContainText("approved by asha");
  await axe(page);
});

test("what is there is accepted, and another conflict is dismissed", async ({ page, person, run, agent, signIn, awake, axe }) => {
  const [asha, lin] = [await person("approver"), await person("operator")];
  const other = await agent.run();
  const first = await collide(run, other, asha, { proposed: wider, patch: raised });
  const next = await collide(run, other, asha, { proposed: wider, patch: raised });
  await signIn(page, lin);

  await page.goto(`/conflicts/${first.conflict}`);
  await awake(page);
  const accept = page.getByRole("form", { name: "Accept what is there" });
  await accept.getByLabel("Note, for people").fill("The raise was meant");
  await accept.getByRole("button", { name: "Accept version 2" }).click();
  await expect(told(page)).toContainText("Accepted what is there");
  await expect(page.getByRole("heading", { name: "You accepted what is there" })).toBeVisible();
  await expect(page.getByText("The raise was meant")).toBeVisible();
  await axe(page);

  await page.goto(`/conflicts/${next.conflict}`);
  await page.getByRole("form", { name: "Dismiss" }).getByRole("button", { name: "Dismiss" }).click();
  await expect(page.getByRole("heading", { name: "You dismissed it" })).toBeVisible();

  await page.goto("/conflicts");
  await expect(row(page, first)).toHaveCount(0);
  await page.getByRole("link", { name: "Resolved" }).click();
  await expect(row(page, first)).toContainText("accepted");
  await expect(row(page, next)).toContainText("dismissed");
  await axe(page);
});

test("the list is narrowed by its address, and by nothing else", async ({ page, server, person, run, agent, signIn, awake }) => {
  const asha = await person("approver");
  const other = await server.agent(fresh("other"), (await person("viewer")).name);
  const mine = await collide(run, await other.run(), asha, { proposed: wider, patch: raised });
  const theirs = await collide(await other.run(), run, asha, { proposed: wider, patch: raised });
  await signIn(page, asha);
  await page.goto(`/conflicts?agent=${agent.name}`);
  await awake(page);
  await expect(row(page, mine)).toBeVisible();
  await expect(row(page, theirs)).toHaveCount(0);
  await page.getByLabel("Search").fill(mine.target.slice(3));
  await page.getByLabel("Search").press("Enter");
  await expect(page).toHaveURL(/agent=.*q=/);
  await expect(row(page, mine)).toBeVisible();
  await page.goto("/conflicts?q=nothing-is-called-so");
  await expect(page.getByRole("heading", { name: "No conflict matches" })).toBeVisible();
});

test("who may not settle it reads everything and is told why every button is off", async ({ page, person, run, agent, signIn, awake, axe }) => {
  const met = await collide(run, await agent.run(), await person("approver"), { proposed: wider, patch: raised });
  await signIn(page, await person("auditor"));
  await page.goto(`/conflicts/${met.conflict}`);
  await awake(page);
  for (const name of ["Ask for a new plan", "Accept version 2", "Dismiss"]) {
    const button = page.getByRole("button", { name, exact: true });
    await expect(button).toBeDisabled();
    await expect(button).toHaveAccessibleDescription(/^Off: /);
  }
  await axe(page);
});

test.describe("refused", () => {
  test.use({ tolerate: [[/409/, /422/], { scope: "test" }] });

  test("somebody else was faster, and what was written is kept @phone", async ({ page, person, run, agent, signIn, awake, axe, javaScriptEnabled }) => {
    const met = await collide(run, await agent.run(), await person("approver"), { proposed: wider, patch: raised });
    await signIn(page, await person("operator"));
    await page.goto(`/conflicts/${met.conflict}`);
    await awake(page);
    const instruction = page.getByLabel("Instruction to the agent");
    await instruction.fill("Leave the severity alone");
    const api = await (await person("admin")).api();
    const reply = await api.post(`/api/v1/conflicts/${met.conflict}/resolution`, { data: { action: "accept_current" } });
    expect(reply.status()).toBe(200);
    // The page tells, and takes nothing from its reader's hands.
    if (javaScriptEnabled !== false) {
      await expect(page.locator("#moved-on")).toContainText("by admin");
      await expect(instruction).toHaveValue("Leave the severity alone");
    }
    await page.getByRole("button", { name: "Ask for a new plan" }).click();
    await expect(page.getByRole("heading", { name: "admin was faster" })).toBeVisible();
    await expect(page.getByText("Leave the severity alone")).toBeVisible();
    await expect(page.getByRole("heading", { name: "admin accepted what is there" })).toBeVisible();
    await axe(page);
  });

  test("a new plan without an instruction is refused where it was asked for", async ({ page, person, run, agent, signIn, awake, axe }) => {
    const met = await collide(run, await agent.run(), await person("approver"), { proposed: wider, patch: raised });
    await signIn(page, await person("operator"));
    await page.goto(`/conflicts/${met.conflict}`);
    await awake(page);
    await page.getByRole("button", { name: "Ask for a new plan" }).click();
    await expect(page.locator("#decide").getByRole("alert").or(page.locator("#decide").getByRole("status")).first()).toBeVisible();
    await expect(page.getByRole("button", { name: "Ask for a new plan" })).toBeEnabled();
    await axe(page);
  });
});

test("an open page of a waiting write says that it no longer fits, before the click", async ({ page, person, run, agent, signIn, awake, axe, javaScriptEnabled }) => {
  const asha = await person("approver");
  const other = await agent.run();
  const target = await create(other, asha);
  const first = await run.propose({ kind: "resource.replace", target, expected_version: 1, params: { value: wider } });
  await signIn(page, await person("operator"));
  await page.goto(`/operations/${first.id}`);
  await awake(page);
  const diff = page.getByRole("region", { name: "Against what is there" });
  await expect(diff).toContainText("3 of");
  await expect(diff.getByRole("row", { name: /dedupe_window_s/ })).toContainText("600");
  await axe(page);
  await approve(asha, await other.propose({ kind: "resource.update", target, expected_version: 1, params: { patch: raised } }));
  if (javaScriptEnabled !== false) {
    await expect(page.locator("#moved-on")).toContainText("conflicted");
    await page.locator("#moved-on").getByRole("link").click();
  } else {
    await page.reload();
  }
  await expect(page.getByRole("heading", { name: "It no longer fits what is there" })).toBeVisible();
  await expect(page.getByRole("button", { name: /^Approve/ })).toHaveCount(0);
  await page.getByRole("link", { name: "See the conflict" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toContainText("It is at version 2.");
});

test("a new conflict appears in the list by itself, and one that is settled elsewhere leaves saying by whom", async ({ page, person, run, agent, signIn, awake, javaScriptEnabled }) => {
  test.skip(javaScriptEnabled === false, "following takes scripts");
  const [asha, other] = [await person("approver"), await agent.run()];
  const known = await collide(run, other, asha, { proposed: wider, patch: raised });
  await signIn(page, asha);
  await page.goto("/conflicts");
  await awake(page);
  await expect(row(page, known)).toBeVisible();
  const met = await collide(run, other, asha, { proposed: wider, patch: raised });
  await expect(row(page, met)).toBeVisible();
  const api = await (await person("admin")).api();
  await api.post(`/api/v1/conflicts/${met.conflict}/resolution`, { data: { action: "dismiss" } });
  await expect(row(page, met)).toContainText("dismissed by admin");
  await expect(row(page, met)).toHaveCount(0);
});

test("long documents are folded, and no difference is @phone", async ({ page, person, run, agent, signIn, awake, axe }) => {
  const lines = (n: number, from = 0) => Array.from({ length: n }, (_, i) => `step ${from + i}: check the pager`).join("\n");
  const text = (middle: string) => `${lines(60)}\n${middle}\n${lines(60, 60)}`;
  const many = Object.fromEntries(Array.from({ length: 40 }, (_, i) => [`route_${i}`, `team-${i}`]));
  const met = await collide(run, await agent.run(), await person("approver"), {
    before: { ...many, steps: text("call omar") },
    proposed: { ...many, steps: text("call lin") },
    patch: { steps: text("call nobody") },
  });
  await signIn(page, await person("operator"));
  await page.goto(`/conflicts/${met.conflict}`);
  await awake(page);
  const table = page.getByRole("region", { name: "Three readings of one document" });
  for (const words of ["call omar", "call lin", "call nobody"]) await expect(table.getByText(words).first()).toBeVisible();
  await expect(table.getByText("step 3: check the pager").first()).toBeHidden();
  const fold = table.getByText(/lines the same/).first();
  await fold.focus();
  await page.keyboard.press("Enter");
  await expect(table.getByText("step 3: check the pager").first()).toBeVisible();
  await expect(table.getByText(/Same in all three/)).toContainText("40 fields");
  await expect(table.getByText("team-7").first()).toBeHidden();
  await axe(page);
});

test("what agents write on these pages is shown, and never believed @phone", async ({ page, server, person, signIn, awake, axe }) => {
  test.slow();
  const hostile = "</bdi><img src=x onerror=alert(1)>\u202egnp.exe";
  const viewer = await person("viewer");
  const agent = await server.agent(fresh("agent"), viewer.name);
  const [run, other] = [await agent.run({ label: hostile }), await agent.run({ label: hostile })];
  const met = await collide(run, other, await person("approver"), {
    before: { [hostile]: hostile, kept: hostile },
    proposed: { [hostile]: `${hostile}1`, kept: hostile },
    patch: { [hostile]: `${hostile}2` },
    reason: hostile,
  });
  await signIn(page, await person("operator"));
  const instruction = page.getByLabel("Instruction to the agent");
  for (const path of ["/conflicts", `/conflicts/${met.conflict}`, `/conflicts/${met.conflict}?view=unified`, `/resources/${met.target}`, `/runs/${run.id}`, "/conflict-map", "/leases"]) {
    await page.goto(path);
    await awake(page);
    const html = await (await page.request.get(path)).text();
    expect(html, path).not.toMatch(/<img|[\u202a-\u202e\u2066-\u2069]/);
    await axe(page);
  }
  await page.goto(`/conflicts/${met.conflict}`);
  await expect(page.locator(".esc").first()).toBeVisible();
  await instruction.fill(`</textarea>${hostile}`);
  await page.getByRole("button", { name: "Ask for a new plan" }).click();
  await expect(page.locator("#decide")).toContainText("</textarea></bdi><img");
  expect(await page.locator("img").count()).toBe(0);
});
