import { expect, test } from "./fixtures.ts";
import { fresh, release } from "./proposals.ts";
import { approve, create, policy } from "./resources.ts";

test("a document is shown as it is, with every version and who made it @phone", async ({ page, person, run, agent, signIn, awake, axe }) => {
  const asha = await person("approver");
  const target = await create(run, asha);
  const changed = await run.propose({ kind: "resource.update", target, expected_version: 1, params: { patch: { owner: null, severity: "low" } } });
  await approve(asha, changed);
  await signIn(page, asha);
  await page.goto("/resources");
  await page.getByLabel("Beginning of a name").fill(target.slice(0, -2));
  await page.getByLabel("Beginning of a name").press("Enter");
  await awake(page);
  await axe(page);
  const row = page.getByRole("listitem").filter({ hasText: target });
  await expect(row).toContainText("held here");
  await row.getByRole("link").first().click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText(target);
  const content = page.getByRole("region", { name: "What it says now" });
  await expect(content.getByRole("row", { name: /^severity/ })).toContainText("low");
  await expect(content.getByRole("row", { name: /^owner/ })).toHaveCount(0);
  const entry = page.getByRole("region", { name: "How it came to be" }).getByRole("listitem").filter({ hasText: changed.short_code });
  await expect(entry).toContainText(agent.name);
  await expect(entry).toContainText("approved by asha");
  await expect(entry).toContainText("owner removed");
  await expect(entry).toContainText("severity changed");
  await axe(page);
  await entry.getByRole("link", { name: changed.short_code }).click();
  await expect(page.getByText(/^Succeeded/).first()).toBeVisible();
});

test("of what lives elsewhere the page says who reported the version, and that only the destination can check", async ({ page, person, run, signIn, awake, axe }) => {
  const environment = fresh("prod");
  const operation = await run.propose(release({ environment }));
  await (await person("approver")).decide(operation.id, "approve");
  await run.carryOut(operation, { status: "succeeded", provider_reference: "deploy-7", resulting_version: 42 });
  await signIn(page, await person("operator"));
  await page.goto(`/resources/release/${environment}`);
  await awake(page);
  await expect(page.getByRole("heading", { name: "The version is a report" })).toBeVisible();
  await expect(page.getByText("only the destination can check")).toBeVisible();
  await expect(page.getByText("42").first()).toBeVisible();
  await expect(page.getByRole("region", { name: "What it says now" })).toHaveCount(0);
  await axe(page);
  const next = await run.propose({ ...release({ environment }), expected_version: 42 });
  await page.goto(`/resources/release/${environment}`);
  await expect(page.getByRole("link", { name: next.short_code })).toBeVisible();
  await page.goto(`/operations/${next.id}`);
  await expect(page.getByText("It lives elsewhere").first()).toBeVisible();
});

test.describe("unknown", () => {
  test.use({ tolerate: [[/404/], { scope: "test" }] });

  test("what nobody has written is not found, whatever its name", async ({ page, person, signIn, axe }) => {
    await signIn(page, await person("approver"));
    for (const path of [`/resources/order/${fresh("o")}`, "/resources/Order/x", "/resources/order/%3Cimg%3E"]) {
      const reply = await page.goto(path);
      expect(reply?.status(), path).toBe(404);
    }
    await axe(page);
    await page.goto("/resources?prefix=nothing/begins-so");
    await expect(page.getByRole("heading", { name: "No resource matches" })).toBeVisible();
  });
});

test.describe("not for everybody", () => {
  test.use({ tolerate: [[/404/], { scope: "test" }] });

  test("only the groups that a rule names read a document, here and on the page of a write of it", async ({ page, server, person, run, signIn, awake, axe }) => {
    const asha = await person("approver");
    const target = await create(run, asha, { ...policy, secret_route: "only for some" });
    const admin = await (await person("admin")).api();
    const rule = await admin.post("/api/v1/resource-rules", { data: { scope: target, readers: ["payroll"] } });
    expect([200, 201]).toContain(rule.status());
    const update = await run.propose({ kind: "resource.update", target, expected_version: 1, params: { patch: { severity: "low" } } });
    await signIn(page, asha);
    expect((await page.goto(`/resources/${target}`))?.status()).toBe(404);
    await page.goto(`/resources?prefix=${target}`);
    await expect(page.getByRole("heading", { name: "No resource matches" })).toBeVisible();
    await page.goto(`/operations/${update.id}`);
    await awake(page);
    await expect(page.getByText("What is there is not shown to you")).toBeVisible();
    expect(await page.content()).not.toContain("only for some");
    await axe(page);
    const insider = await server.person(fresh("insider"), "viewer", ["payroll"]);
    await page.context().clearCookies();
    await signIn(page, insider);
    await page.goto(`/resources/${target}`);
    await expect(page.getByText("only for some")).toBeVisible();
  });
});
