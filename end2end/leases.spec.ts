import { expect, test } from "./fixtures.ts";
import { fresh } from "./proposals.ts";
import { expectStatus, type Members, type Run } from "./server.ts";

interface Lease {
  id: string;
  resource: string;
  fencing_token: number;
}

async function lease(run: Run, ttl_s = 300): Promise<Lease> {
  const reply = await run.http.post("/api/v1/leases", { data: { resource: `release/${fresh("stage")}`, ttl_s } });
  return (await expectStatus<{ lease: Lease }>(reply, 201)).lease;
}

const renew = (run: Run, { id }: Lease, data: Members) => run.http.post(`/api/v1/leases/${id}/renew`, { data });

test("a lease shows who holds what, how far they are, and how long they still may @phone", async ({ page, person, agent, signIn, awake, axe, javaScriptEnabled }) => {
  const run = await agent.run({ label: "night shift" });
  const held = await lease(run);
  await expectStatus(await renew(run, held, { ttl_s: 300, progress: "step 3 of 9" }), 200);
  await signIn(page, await person("approver"));
  await page.goto("/leases");
  await awake(page);
  const row = page.getByRole("listitem").filter({ hasText: held.resource });
  await expect(row).toContainText(agent.name);
  await expect(row).toContainText("night shift");
  await expect(row).toContainText("step 3 of 9");
  await expect(row).toContainText(String(held.fencing_token));
  const left = row.locator("time[data-left]");
  await expect(left).toHaveText(/^[45]:\d\d$/);
  if (javaScriptEnabled !== false) {
    const before = (await left.textContent()) ?? "";
    await expect(left).not.toHaveText(before);
  }
  await axe(page);
  await row.getByRole("link").first().click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText(`Lease of ${held.resource}`);
  await expect(page.getByText("Off: only operators and admins may.")).toBeVisible();
  await expect(page.getByRole("button", { name: "Release it by force" })).toHaveCount(0);
  await page.goto(`/runs/${run.id}`);
  await expect(page.getByRole("link", { name: held.resource })).toBeVisible();
  await axe(page);
});

test.describe("by force", () => {
  test.use({ tolerate: [[/422/], { scope: "test" }] });

  test("an operator takes a lease away by its exact id and a reason, and its token is stale @phone", async ({ page, person, run, signIn, awake, axe }) => {
    const held = await lease(run);
    await signIn(page, await person("operator"));
    await page.goto(`/leases/${held.id}`);
    await awake(page);
    await axe(page);
    const form = page.getByRole("form", { name: "Release by force" });
    await form.getByLabel("The lease’s id, typed").fill("ls_0");
    await form.getByLabel("Why").fill("Its holder hangs");
    await form.getByRole("button", { name: "Release it by force" }).click();
    await expect(page.getByRole("alert")).toContainText("That is not this lease’s id. Nothing was done.");
    await expect(form.getByLabel("Why")).toHaveValue("Its holder hangs");
    await axe(page);
    await form.getByLabel("The lease’s id, typed").fill(held.id);
    await form.getByRole("button", { name: "Release it by force" }).click();
    await expect(page.getByText("It is over: force released.")).toBeVisible();
    await expect(page.getByText("Its holder hangs")).toBeVisible();
    await axe(page);
    expect((await renew(run, held, { ttl_s: 30 })).status()).toBe(409);
    await page.goto("/leases");
    await expect(page.getByRole("listitem").filter({ hasText: held.resource })).toHaveCount(0);
  });
});
