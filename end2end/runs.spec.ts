import { expect, test } from "./fixtures.ts";
import { fresh, ticket } from "./proposals.ts";
import { create } from "./resources.ts";

test("a run is stopped by an operator, and what it has not sent is cancelled", { tag: "@phone" }, async ({ page, person, agent, signIn, awake, axe }) => {
  const run = await agent.run({ label: "night shift" });
  const operation = await run.propose(ticket());
  await signIn(page, await person("operator"));
  await page.goto("/runs");
  await awake(page);
  await axe(page);
  await page.locator(".row").filter({ hasText: run.id }).getByRole("link").click();

  await expect(page.getByRole("heading", { level: 1 })).toHaveText("night shift");
  await expect(page.locator(".row").filter({ hasText: operation.target })).toContainText("Pending");
  await axe(page);
  await page.getByLabel("Why").fill("It repeats itself");
  await page.getByRole("button", { name: "Stop the run" }).click();
  await expect(page.getByText(/by lin/)).toContainText("It repeats itself");
  await expect(page.locator(".row").filter({ hasText: operation.target })).toContainText("Cancelled");
  await expect(page.getByRole("button", { name: "Stop the run" })).toHaveCount(0);
  const again = await run.tryPropose(ticket());
  expect(again.status()).toBe(403);
});

test("whoever may not stop a run is told who may", async ({ page, person, run, signIn }) => {
  await signIn(page, await person("approver"));
  await page.goto(`/runs/${run.id}`);
  await expect(page.getByRole("button", { name: "Stop the run" })).toHaveCount(0);
  await expect(page.getByText("by its agent's owner or by an operator")).toBeVisible();
});

test("what a run may do is approved ahead, counted, and revoked @phone", async ({ page, person, agent, signIn, awake, axe }) => {
  const asha = await person("approver");
  const prefix = `notification-policy/${fresh("team")}`;
  const run = await agent.run({ label: "tuner", write_set: [{ resource: `${prefix}*`, verbs: ["create", "update"] }] });
  const target = await create(run, asha, { severity: "high" }, `${prefix}-alerts`);
  await signIn(page, asha);
  await page.goto(`/runs/${run.id}`);
  await awake(page);
  await expect(page.getByText(`${prefix}*`).first()).toBeVisible();
  await page.getByText("Approve ahead what this run may do").click();
  const form = page.getByRole("form", { name: "Approve ahead" });
  await form.getByRole("checkbox", { name: "resource.update" }).check();
  await expect(form.getByLabel("Targets, one a line")).toHaveValue(`${prefix}*`);
  await form.getByLabel("Operations at most").fill("2");
  await form.getByLabel("Why, for the record").fill("Tuning tonight");
  await axe(page);
  await form.getByRole("button", { name: "Approve ahead" }).click();
  const granted = page.getByRole("region", { name: "Approved ahead" }).getByRole("listitem").filter({ hasText: "Tuning tonight" });
  await expect(granted).toContainText("0 of 2 used");
  await axe(page);

  const covered = await run.propose({ kind: "resource.update", target, expected_version: 1, params: { patch: { severity: "low" } } });
  expect((await run.operation(covered.id)).state).toBe("succeeded");
  await page.goto(`/operations/${covered.id}`);
  await expect(page.getByText("Approved ahead").first()).toBeVisible();
  await axe(page);
  await page.goto(`/runs/${run.id}`);
  await expect(granted).toContainText("1 of 2 used");
  await granted.getByRole("button", { name: /^Revoke/ }).click();
  await expect(granted).toContainText("Revoked");
  const after = await run.propose({ kind: "resource.update", target, expected_version: 2, params: { patch: { severity: "high" } } });
  expect(after.state).toBe("pending");
});

test.describe("refused", () => {
  test.use({ tolerate: [[/422/, /403/], { scope: "test" }] });

  test("an approval ahead of nothing is refused with what was typed, and nobody gives one to their own agent", async ({ page, person, agent, signIn, awake, axe }) => {
    const run = await agent.run({ label: "tuner", write_set: [{ resource: "notification-policy/*", verbs: ["update"] }] });
    await signIn(page, await person("approver"));
    await page.goto(`/runs/${run.id}`);
    await awake(page);
    await page.getByText("Approve ahead what this run may do").click();
    const form = page.getByRole("form", { name: "Approve ahead" });
    await form.getByLabel("Targets, one a line").fill("not a target");
    await form.getByLabel("Why, for the record").fill("Kept");
    await form.getByRole("button", { name: "Approve ahead" }).click();
    await expect(page.getByRole("alert").first()).toBeVisible();
    await expect(form.getByLabel("Why, for the record")).toHaveValue("Kept");
    await axe(page);
    await page.context().clearCookies();
    await signIn(page, await person("viewer"));
    await page.goto(`/runs/${run.id}`);
    await expect(page.getByText("Nothing can be approved ahead: You own this agent")).toBeVisible();
  });
});
