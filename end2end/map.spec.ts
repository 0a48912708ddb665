import { expect, test } from "./fixtures.ts";
import { fresh } from "./proposals.ts";

test("two live runs that write the same stand first on the map, in a sentence @phone", async ({ page, person, agent, signIn, awake, axe }) => {
  const [shared, apart] = [`release/${fresh("stage")}`, `release/${fresh("stage")}`];
  const first = await agent.run({ label: fresh("nightly"), write_set: [{ resource: shared, verbs: ["deploy"] }] });
  const second = await agent.run({ label: fresh("hotfix"), write_set: [{ resource: shared, verbs: ["deploy"] }, { resource: apart, verbs: ["deploy"] }] });
  const reader = await agent.run({ label: fresh("reader"), write_set: [], reads: [apart] });
  await signIn(page, await person("approver"));
  await page.goto("/conflict-map");
  await awake(page);
  const pairs = page.getByRole("region", { name: "Colliding pairs" });
  const clash = pairs.getByRole("listitem").filter({ hasText: shared });
  await expect(clash).toContainText("both");
  await expect(clash.getByRole("link")).toHaveCount(3);
  await expect(pairs.getByRole("listitem").filter({ hasText: apart })).toContainText("reads");
  await expect(page.locator(".matrix, .map-list").locator("visible=true").first()).toContainText(shared);
  await axe(page);
  for (const run of [first, second, reader]) expect(run.id).toBeTruthy();
});

test.describe("a set that is no set", () => {
  test.use({ tolerate: [[/422/], { scope: "test" }] });

  test("a set that is not granted yet is checked, and nothing is granted by it @phone", async ({ page, person, agent, signIn, awake, axe }) => {
    const shared = `release/${fresh("stage")}`;
    await agent.run({ label: "holder", write_set: [{ resource: shared, verbs: ["deploy"], exclusive: true }] });
    await signIn(page, await person("approver"));
    await page.goto("/conflict-map");
    await awake(page);
    const form = page.getByRole("form", { name: "Check a write set" });
    await form.getByLabel("Would write, one a line").fill(`${shared} deploy`);
    await form.getByRole("button", { name: "Check" }).click();
    await expect(page.getByRole("heading", { name: /^1 collision/ })).toBeVisible();
    await expect(form.getByLabel("Would write, one a line")).toHaveValue(`${shared} deploy`);
    await axe(page);
    await form.getByLabel("Would write, one a line").fill(`release/${fresh("elsewhere")} deploy`);
    await form.getByRole("button", { name: "Check" }).click();
    await expect(page.getByRole("heading", { name: "Nothing is in the way" })).toBeVisible();
    await form.getByLabel("Would write, one a line").fill("this is not one");
    await form.getByRole("button", { name: "Check" }).click();
    await expect(page.getByRole("alert")).toBeVisible();
    await axe(page);
  });
});
