import { expect, test } from "./fixtures.ts";
import { release, ticket } from "./proposals.ts";

test("an approved operation is carried out once, and its page says so", async ({ page, person, run, signIn, awake, axe }) => {
  const operation = await run.propose(ticket());
  await signIn(page, await person("approver"));
  await awake(page);
  await axe(page);

  const row = page.getByRole("listitem").filter({ hasText: operation.target });
  await expect(row).toContainText(operation.consequence);
  await expect(row).toContainText(operation.short_code);
  await row.getByRole("link").first().click();

  await expect(page.getByRole("heading", { level: 1 })).toContainText("asks to");
  await expect(page.getByText(operation.consequence).first()).toBeVisible();
  await awake(page);
  await axe(page);
  await page.getByRole("button", { name: /^Approve/ }).click();
  await expect.poll(async () => (await run.operation(operation.id)).state).toBe("approved");

  await run.carryOut(operation, { status: "succeeded", provider_reference: "TCK-1" });
  await page.goto(`/operations/${operation.id}`);
  await expect(page.getByText(/^Succeeded/).first()).toBeVisible();
  await expect(page.getByText("TCK-1").first()).toBeVisible();
  await expect(page.getByRole("button", { name: /^Approve/ })).toHaveCount(0);
  await axe(page);
});

test("a rejection carries its reason, and the operation never runs", async ({ page, person, run, signIn, awake }) => {
  const operation = await run.propose(ticket());
  await signIn(page, await person("approver"));
  await page.goto(`/operations/${operation.id}`);
  await awake(page);

  const reject = page.getByRole("form", { name: "Reject" });
  await reject.getByRole("radio", { name: "Wrong content" }).check();
  await reject.getByLabel("Note").fill("The certificate was rotated this morning");
  await reject.getByRole("button", { name: "Reject" }).click();
  await expect.poll(async () => (await run.operation(operation.id)).state).toBe("rejected");

  await page.goto(`/operations/${operation.id}`);
  await expect(page.getByText(/^Rejected/).first()).toBeVisible();
  await expect(page.getByText("The certificate was rotated this morning").first()).toBeVisible();
  const claim = await run.http.post(`/api/v1/operations/${operation.id}/claim`, { data: { fingerprint: operation.fingerprint } });
  expect(claim.status()).toBe(409);
});

test("a critical operation is approved by typing its target", async ({ page, person, run, signIn, awake, axe, javaScriptEnabled }) => {
  const operation = await run.propose(release());
  await signIn(page, await person("approver"));
  await page.goto(`/operations/${operation.id}`);
  await awake(page);
  await axe(page);

  const target = page.getByLabel(/^Target/);
  const approve = page.getByRole("button", { name: /^Approve/ });
  if (javaScriptEnabled !== false) {
    await expect(approve).toBeDisabled();
    await target.fill("release/prod-elsewhere");
    await expect(approve).toBeDisabled();
  }
  await target.fill(operation.target);
  await approve.click();
  await expect.poll(async () => (await run.operation(operation.id)).state).toBe("approved");
});
