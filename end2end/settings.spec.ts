import { expect, test } from "./fixtures.ts";
import { fresh, ticket } from "./proposals.ts";

test("an admin changes the rules, and asks which would match", { tag: "@phone" }, async ({ page, person, agent, signIn, axe }) => {
  await signIn(page, await person("admin"));
  await page.goto("/settings/policies");
  await axe(page);
  await page.getByRole("link", { name: "Edit the rules" }).click();
  const name = fresh("rule");
  const rule = { name, match: { kind: "user.invite", target: `user/${name}*` }, require: { approvals: 2 } };
  await page.getByLabel("Rules, from the top").fill(JSON.stringify({ rules: [rule] }));
  await axe(page);
  await page.getByRole("button", { name: "Put in force" }).click();
  await expect(page.getByRole("listitem").filter({ hasText: name })).toContainText("2 of group approvers");

  await page.getByLabel("Kind").selectOption("user.invite");
  await page.getByLabel("Target").fill(`user/${name}@example.test`);
  await page.getByLabel("Agent").selectOption(agent.name);
  await page.getByRole("button", { name: "Try" }).click();
  await expect(page.getByText(`Rule 1, ${name}`)).toBeVisible();

  await page.getByLabel("Target").fill("user/somebody@example.test");
  await page.getByRole("button", { name: "Try" }).click();
  await expect(page.getByText("The default rule")).toBeVisible();
});

test.describe("refused", () => {
  test.use({ tolerate: [/40[39]|412|422/] });

  test("a rule that would wait for ever is not taken, and what was typed stays", async ({ page, person, signIn }) => {
    await signIn(page, await person("admin"));
    await page.goto("/settings/policies/edit");
    const typed = JSON.stringify({ rules: [{ name: "never", require: { approval_ttl_s: 0 } }] });
    await page.getByLabel("Rules, from the top").fill(typed);
    await page.getByRole("button", { name: "Put in force" }).click();
    await expect(page.getByRole("alert")).toContainText("/rules/0/require/approval_ttl_s");
    await expect(page.getByLabel("Rules, from the top")).toHaveValue(typed);
  });

  test("only admins change settings", async ({ page, person, signIn, axe }) => {
    await signIn(page, await person("approver"));
    await page.goto("/settings/people");
    await expect(page.getByRole("button", { name: "Add" })).toHaveCount(0);
    await page.goto("/settings/policies/edit");
    await expect(page.getByText("403 forbidden")).toBeVisible();
    await axe(page);
  });
});

test("a new agent's token is shown once", async ({ page, person, server, signIn, axe }) => {
  const owner = await person("viewer");
  await signIn(page, await person("admin"));
  await page.goto("/settings/agents");
  await axe(page);
  const name = fresh("clerk");
  await page.getByLabel("Name").fill(name);
  await page.getByLabel("Owner").selectOption(owner.name);
  await page.getByLabel("Ceiling").fill("project/ops* create");
  await page.getByRole("button", { name: "Add, and show the token" }).click();
  const token = await page.getByText(/^cfa_/).textContent();
  await axe(page);
  const started = await fetch(`${server.url}/api/v1/runs`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({ label: "first" }),
  });
  expect(started.status).toBe(201);
  await page.getByRole("link", { name: "I have it" }).click();
  await expect(page.getByRole("row").filter({ hasText: name })).toContainText("project/ops* create");
  await expect(page.getByText(token!)).toHaveCount(0);
});

test("a person is added, changed and disabled", { tag: "@phone" }, async ({ page, person, signIn, axe }) => {
  await signIn(page, await person("admin"));
  await page.goto("/settings/people");
  await axe(page);
  const name = fresh("p");
  await page.getByLabel("Name").fill(name);
  await page.getByLabel("Role").selectOption("approver");
  await page.getByLabel("Groups").fill("approvers, sre");
  await page.getByLabel("First password").fill("a long enough password");
  await page.getByRole("button", { name: "Add" }).click();
  const row = page.getByRole("row").filter({ hasText: name });
  await expect(row).toContainText("approvers sre");

  await page.getByRole("link", { name }).click();
  await axe(page);
  await page.getByLabel("Role").selectOption("viewer");
  await page.getByLabel("may sign in").uncheck();
  await page.getByRole("button", { name: "Save" }).click();
  await expect(row).toContainText("viewer");
  await expect(row).toContainText("disabled");
});

test("every other page of the settings is complete and accessible", { tag: "@phone" }, async ({ page, person, signIn, axe, awake }) => {
  await signIn(page, await person("admin"));
  for (const path of ["executors", "kinds", "kinds/deployment.release", "kinds/new", "pause", "sessions", "keyboard"]) {
    await page.goto(`/settings/${path}`);
    await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
    await awake(page);
    await axe(page);
  }
});

test("another browser's session is ended from the list", async ({ page, browser, baseURL, person, signIn }) => {
  const reader = await person("approver", "noor");
  await signIn(page, reader);
  const elsewhere = await browser.newContext({ baseURL, userAgent: "Another browser" });
  const other = await elsewhere.newPage();
  await signIn(other, reader);
  await page.goto("/settings/sessions");
  await page.getByRole("row").filter({ hasText: "Another browser" }).getByRole("button", { name: "End it" }).click();
  await expect(page.getByRole("row").filter({ hasText: "Another browser" })).toHaveCount(0);
  await other.goto("/");
  await expect(other).toHaveURL(/\/sign-in$/);
  await elsewhere.close();
});

test("a paused desk says so on every page, by whom and why", async ({ page, person, run, signIn, axe }) => {
  const admin = await person("admin");
  await signIn(page, admin);
  await page.goto("/settings/pause");
  await page.getByLabel("Why").fill("Looking into prod-eu");
  await page.getByRole("button", { name: "Pause the desk" }).click();
  try {
    await page.goto("/");
    await expect(page.getByRole("status").filter({ hasText: "paused the desk" })).toContainText("Looking into prod-eu");
    await axe(page);
    const operation = await run.propose(ticket());
    expect((await (await person("approver")).decide(operation.id, "approve")).status()).toBe(200);
    const claim = await run.http.post(`/api/v1/operations/${operation.id}/claim`, { data: { fingerprint: operation.fingerprint } });
    expect(claim.status()).toBe(503);
  } finally {
    await page.goto("/settings/pause");
    await page.getByRole("button", { name: "End the pause" }).click();
  }
  await page.goto("/");
  await expect(page.getByText("paused the desk")).toHaveCount(0);
});
