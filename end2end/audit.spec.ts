import type { Page } from "@playwright/test";
import { expect, test } from "./fixtures.ts";
import { ticket } from "./proposals.ts";

const EXPORT = "**/api/v1/audit/export";

/** Hands the page a changed export. */
async function forge(page: Page, change: (log: string) => string): Promise<void> {
  await page.route(EXPORT, async (route) => {
    const reply = await route.fetch();
    await route.fulfill({ response: reply, body: change(await reply.text()) });
  });
}

test("the log is shown in one order, and this browser verifies it", { tag: "@phone" }, async ({ page, person, run, signIn, awake, axe, javaScriptEnabled }) => {
  const operation = await run.propose(ticket());
  await (await person("approver")).decide(operation.id, "approve");
  await signIn(page, await person("auditor"));
  await page.getByRole("link", { name: "Audit" }).locator("visible=true").or(page.locator(".menu summary").locator("visible=true")).first().click();
  const inMenu = page.locator(".menu").getByRole("link", { name: "Audit" });
  if (await inMenu.isVisible()) await inMenu.click();
  await expect(page.getByRole("heading", { level: 1, name: "Audit" })).toBeVisible();
  await awake(page);
  const granted = page.getByRole("listitem").filter({ hasText: "approval.granted" }).first();
  await expect(granted).toContainText("asha");
  await expect(granted).toContainText(operation.short_code);
  if (javaScriptEnabled === false) {
    await expect(page.getByText(/The server’s own word|Not signed yet/).first()).toBeVisible();
    await expect(page.getByText("Not checked in this browser")).toBeVisible();
    return;
  }
  await expect(page.getByRole("heading", { name: /^Verified to record \d/ })).toBeVisible();
  await expect(page.getByText("The server’s word was not taken.")).toBeVisible();
  await expect(page.getByText(/under the key this server names; this browser keeps it from now on/)).toBeVisible();
  await axe(page);

  // What this browser kept is a pin for the next visit.
  await page.reload();
  await expect(page.getByText(/a checkpoint kept outside the server, [\d,]+ records, is a prefix of this log/)).toBeVisible();
  await expect(page.getByText(/under the key this browser kept/)).toBeVisible();
  await expect(page.getByRole("button", { name: "Forget the key and checkpoint kept here" })).toBeVisible();
  await axe(page);
});

test("the story of one operation is a search away", async ({ page, person, run, signIn, awake }) => {
  const operation = await run.propose(ticket());
  await signIn(page, await person("auditor"));
  await page.goto("/audit");
  await awake(page);
  await page.getByRole("searchbox").fill(operation.id);
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(new RegExp(`operation=${operation.id}`));
  await expect(page.locator(".chain .row")).toHaveCount(1);
  await expect(page.locator(".chain .row")).toContainText("operation.proposed");
  await page.getByRole("searchbox").fill("3");
  await page.keyboard.press("Enter");
  await expect(page.locator(".chain .seq").first()).toHaveText("3");
});

test.describe("a log that was changed", { tag: "@scripts" }, () => {
  const changes: [string, (log: string) => string, RegExp, RegExp][] = [
    ["one byte of a record", (log) => log.replace('"seq":5,', '"seq":5, '), /^Record 5 is not what was signed/, /canonical form/],
    ["a time in a record", (log) => log.replace(/"at":(\d+)/, (_, at: string) => `"at":${Number(at) + 1}`), /^Record 0 is not what was signed/, /content was changed/],
    ["a record removed", (log) => log.split("\n").filter((_, i) => i !== 4).join("\n"), /^Record 4 is not what was signed/, /gap/],
    ["two records exchanged", (log) => { const lines = log.split("\n"); [lines[4], lines[5]] = [lines[5]!, lines[4]!]; return lines.join("\n"); }, /^Record 4 is not what was signed/, /gap/],
    ["the checkpoint removed", (log) => log.split("\n").slice(0, -2).join("\n") + "\n", /is not what was signed/, /without a checkpoint/],
    ["the tail cut off", (log) => { const lines = log.split("\n"); lines.splice(-4, 2); return lines.join("\n"); }, /is not what was signed/, /cut off/i],
  ];
  test("the place and the reason are told", async ({ page, person, run, signIn, axe }) => {
    await run.propose(ticket());
    await signIn(page, await person("auditor"));
    for (const [what, change, heading, reason] of changes) {
      await forge(page, change);
      await page.goto("/audit");
      await expect(page.getByRole("heading", { name: heading }), what).toBeVisible();
      await expect(page.locator("[data-verdict]"), what).toContainText(reason);
      await page.unroute(EXPORT);
    }
    await axe(page);
  });

  test("an older log is told from a newer one that this browser has seen", async ({ page, person, run, signIn }) => {
    await signIn(page, await person("auditor"));
    const old = await (await (await person("auditor")).api()).get("/api/v1/audit/export").then((reply) => reply.text());
    await run.propose(ticket());
    await page.goto("/audit");
    await expect(page.getByRole("heading", { name: /^Verified to record/ })).toBeVisible();
    await forge(page, () => old);
    await page.reload();
    await expect(page.locator("[data-verdict]")).toContainText(/cut off: the pin counts/i);
  });

  test("a key of one's own decides, whatever the server names", async ({ page, person, server, signIn }) => {
    await signIn(page, await person("auditor"));
    const vkey = await server.cli(["audit", "vkey"]);
    await page.goto("/audit");
    await expect(page.getByRole("heading", { name: /^Verified to record/ })).toBeVisible();
    await page.getByText("Check against a key and a checkpoint of your own").click();
    await page.getByLabel("Verifier key").fill(vkey);
    await page.getByRole("button", { name: "Verify" }).click();
    await expect(page.getByText("under the key you brought")).toBeVisible();
    await page.getByLabel("Verifier key").fill("counterfoil/elsewhere+00000000+AAAA");
    await page.getByRole("button", { name: "Verify" }).click();
    await expect(page.getByRole("heading", { name: "Not checked" })).toBeVisible();
  });
});

test.describe("who may not read it", () => {
  test.use({ tolerate: [[/403/], { scope: "test" }] });

  test("is told so", async ({ page, person, signIn, axe }) => {
    await signIn(page, await person("approver"));
    await page.goto("/audit");
    await expect(page.getByText("403 forbidden")).toBeVisible();
    await axe(page);
  });
});
