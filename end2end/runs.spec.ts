import { expect, test } from "./fixtures.ts";
import { ticket } from "./proposals.ts";

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
