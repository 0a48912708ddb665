import { becomes, comment, finish, openSet, part, redo, refund, reversible } from "./change-sets.ts";
import { expect, test } from "./fixtures.ts";
import { expectStatus, type Operation } from "./server.ts";

test("after a refund whose notification fails only the notification is done again", { tag: "@phone" }, async ({ page, person, run, signIn, awake, axe }) => {
  const asha = await person("approver");
  const set = await openSet(run, "Refund a lost parcel", [refund(), comment("c1")]);
  await signIn(page, asha);
  await page.goto(`/runs/${run.id}`);
  await page.getByRole("link", { name: set.title }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText(set.title);
  await awake(page);
  await expect(page.getByText("Step 1 waits for a decision.")).toBeVisible();
  const [first, second] = [page.getByRole("region", { name: "Step 1" }), page.getByRole("region", { name: "Step 2" })];
  await expect(second).toContainText("Not proposed yet");
  await expect(first).toContainText("Nothing named: a person decides.");
  await expect(page.getByText("Off: a run of its agent, the agent’s owner, an operator or an admin may.")).toBeVisible();
  await axe(page);

  const money = await part(run, set, 1);
  await first.getByRole("link", { name: money.short_code }).click();
  await expect(page).toHaveURL(new RegExp(`/operations/${money.id}$`));
  await expect(page.getByText(`Step 1 of ${set.title}`)).toBeVisible();
  await finish(run, asha, money, { status: "succeeded", provider_reference: "re_1" });
  await finish(run, asha, await part(run, set, 2), { status: "failed" });

  await page.getByRole("link", { name: set.title }).click();
  await expect(page.getByText(/^Step 2 ended without an effect\. A run of its agent does it again; what was done stays\./)).toBeVisible();
  await expect(second).toContainText("Failed");
  await axe(page);
  await redo(run, set, { step: 2, params: comment("c2").params });
  await page.reload();
  await expect(page.getByText("Step 2 waits for a decision.")).toBeVisible();
  await expect(second.getByRole("listitem")).toContainText("Failed");
  await finish(run, asha, await part(run, set, 2), { status: "succeeded", provider_reference: "c2" });
  await becomes(run, set, "done");
  await page.reload();
  await expect(page.getByText("Nothing: every step is done.")).toBeVisible();
  await expect(first).toContainText("Succeeded");
  await axe(page);

  const reply = await run.http.get("/api/v1/operations?limit=200");
  const { operations } = await expectStatus<{ operations: Operation[] }>(reply, 200);
  expect(operations.map(({ kind }) => kind).sort()).toEqual(["payment.refund", "ticket.comment", "ticket.comment"]);
});

test("what was done is undone backwards, each step with votes of its own", { tag: "@phone" }, async ({ page, person, run, signIn, awake, axe }) => {
  const asha = await person("approver");
  const set = await openSet(run, "Rotate both certificates", [reversible("Rotate one"), reversible("Rotate the other"), comment("c1")]);
  const done = [];
  for (const step of [1, 2]) {
    const operation = await part(run, set, step);
    await finish(run, asha, operation, { status: "succeeded", provider_reference: `OPS-${step}` });
    done.push(operation);
  }
  const unsent = await part(run, set, 3);
  await signIn(page, await person("operator"));
  await page.goto(`/change-sets/${set.id}`);
  await awake(page);
  const undo = page.getByRole("form", { name: "Undo" });
  await undo.getByLabel("Why").fill("The wrong host");
  await undo.getByRole("button", { name: "Undo what was done" }).click();
  await expect(page.getByText("What undoes step 2 waits for a decision.")).toBeVisible();
  await expect(page.getByText("“The wrong host”")).toBeVisible();
  await expect(page.getByRole("region", { name: "Step 1" })).not.toContainText("Undoing");
  await expect(undo).toHaveCount(0);
  expect((await run.operation(unsent.id)).state).toBe("cancelled");
  await axe(page);

  for (const step of [2, 1]) {
    await finish(run, asha, await part(run, set, step, "compensated_by"), { status: "succeeded", provider_reference: `OPS-${step}` });
  }
  await becomes(run, set, "compensated");
  await page.reload();
  await expect(page.getByText("Nothing: what was done is undone.")).toBeVisible();
  await axe(page);
  for (const [i, { id }] of done.entries()) {
    const by = await part(run, set, i + 1, "compensated_by");
    await page.goto(`/operations/${id}`);
    await page.getByRole("link", { name: "Made good" }).click();
    await expect(page).toHaveURL(new RegExp(`/operations/${by.id}$`));
    await expect(page.getByText(`Undoes step ${i + 1} of ${set.title}`)).toBeVisible();
  }
  await axe(page);
});

test("a set that cannot be undone as planned waits for a person, among what is unknown", async ({ page, person, run, signIn, awake, axe }) => {
  const set = await openSet(run, "Refund without a way back", [refund()]);
  await finish(run, await person("approver"), await part(run, set, 1), { status: "succeeded", provider_reference: "re_1" });
  await becomes(run, set, "done");
  await signIn(page, await person("operator"));
  await page.goto(`/change-sets/${set.id}`);
  await awake(page);
  await expect(page.getByText("Step 1 names nothing that undoes it: there a person decides.")).toBeVisible();
  await page.getByLabel("Why").fill("The wrong order");
  await page.getByRole("button", { name: "Undo what was done" }).click();
  await expect(page.getByText("A person decides: what was done cannot be undone as planned.")).toBeVisible();
  await expect(page.getByText("Step 1: it names no compensation.")).toBeVisible();
  await axe(page);
  await page.goto("/unknown");
  await axe(page);
  await page.getByRole("region", { name: "Stuck change sets" }).getByRole("link", { name: set.title }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText(set.title);
});

test.describe("refused", () => {
  test.use({ tolerate: [[/422/], { scope: "test" }] });

  test("a set is not undone without a reason, and says so", async ({ page, person, run, signIn, awake, axe }) => {
    const set = await openSet(run, "Rotate a certificate", [reversible("Rotate one")]);
    await signIn(page, await person("operator"));
    await page.goto(`/change-sets/${set.id}`);
    await awake(page);
    await page.getByLabel("Why").fill("  ");
    await page.getByRole("button", { name: "Undo what was done" }).click();
    await expect(page.getByRole("alert")).toHaveText("Say why: it stands in the log.");
    await axe(page);
    expect((await run.operation((await part(run, set, 1)).id)).state).toBe("pending");
  });
});
