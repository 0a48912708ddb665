import type { Page } from "@playwright/test";
import { expect, test } from "./fixtures.ts";
import { release, ticket } from "./proposals.ts";

/** What the reader just did, said once. */
const told = (page: Page) => page.locator("[data-toast]");

/** Counts what the page sends to decide. */
function posts(page: Page): string[] {
  const sent: string[] = [];
  page.on("request", (request) => {
    if (request.method() === "POST") sent.push(new URL(request.url()).pathname);
  });
  return sent;
}

test("an approved operation is carried out once, and its page says so", { tag: "@phone" }, async ({ page, person, run, signIn, awake, axe }) => {
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
  await expect(told(page)).toContainText("may run it once");
  expect((await run.operation(operation.id)).state).toBe("approved");
  await axe(page);

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
  await expect(told(page)).toContainText("Rejected: wrong content");
  expect((await run.operation(operation.id)).state).toBe("rejected");

  await page.goto(`/operations/${operation.id}`);
  await expect(told(page)).toHaveCount(0);
  await expect(page.getByText(/^Rejected/).first()).toBeVisible();
  await expect(page.getByText("The certificate was rotated this morning").first()).toBeVisible();
  const claim = await run.http.post(`/api/v1/operations/${operation.id}/claim`, { data: { fingerprint: operation.fingerprint } });
  expect(claim.status()).toBe(409);
});

test("a critical operation is approved by typing its target", { tag: "@phone" }, async ({ page, person, run, signIn, awake, axe, javaScriptEnabled }) => {
  const operation = await run.propose(release());
  await signIn(page, await person("approver"));
  await page.goto(`/operations/${operation.id}`);
  await awake(page);
  await axe(page);

  const target = page.getByLabel(/^Target/);
  const approve = page.getByRole("button", { name: /^Approve/ });
  if (javaScriptEnabled !== false) {
    await expect(approve).toBeDisabled();
    await expect(approve).toHaveAccessibleDescription("Off until the target is typed.");
    await target.fill("release/prod-elsewhere");
    await expect(approve).toBeDisabled();
  }
  await target.fill(operation.target);
  await approve.click();
  await expect(told(page)).toContainText("Approved");
  expect((await run.operation(operation.id)).state).toBe("approved");
});

test.describe("at the second step", () => {
  // Without scripts it is a page of its own, answered with 422: nothing is decided yet.
  test.use({ tolerate: [[/422/], { scope: "test" }] });

  test("leaving at the second step sends nothing, and going through with it decides once", async ({ page, person, run, signIn, awake, javaScriptEnabled }) => {
    const operation = await run.propose(release());
    await signIn(page, await person("approver"));
    await page.goto(`/operations/${operation.id}`);
    await awake(page);
    const sent = posts(page);

    const approve = page.getByRole("button", { name: /^Approve/ });
    if (javaScriptEnabled === false) {
      // The second step is a page of its own.
      await approve.click();
      await expect(page.getByRole("heading", { level: 1, name: "Type the target to approve" })).toBeVisible();
      await page.getByRole("link", { name: "Back, without deciding" }).click();
    } else {
      await page.getByLabel(/^Target/).fill(operation.target.slice(0, -1));
      await page.getByRole("navigation", { name: "Place in the queue" }).getByRole("link", { name: "Review" }).click();
      await page.goBack();
      expect(sent).toEqual([]);
    }
    expect((await run.operation(operation.id)).version).toBe(operation.version);

    sent.length = 0;
    await page.goto(`/operations/${operation.id}`);
    await awake(page);
    await page.getByLabel(/^Target/).fill(operation.target);
    await approve.click();
    await expect(told(page)).toContainText("Approved");
    expect(sent).toHaveLength(1);
    expect((await run.operation(operation.id)).state).toBe("approved");
  });
});

test.describe("where the islands cannot start", () => {
  test.use({ tolerate: [[/Failed to load resource/, /Failed to fetch/, /preload/, /422/], { scope: "test" }] });

  test("the plain form decides, and the second step cannot be skipped", { tag: "@scripts" }, async ({ page, person, run, signIn }) => {
    const operation = await run.propose(release());
    await page.route("**/*.wasm*", (route) => route.abort());
    await signIn(page, await person("approver"));
    await page.goto(`/operations/${operation.id}`);
    const sent = posts(page);
    await page.getByRole("button", { name: /^Approve/ }).click();
    await expect(page.getByRole("heading", { level: 1, name: "Type the target to approve" })).toBeVisible();
    expect((await run.operation(operation.id)).state).toBe("pending");
    await page.getByLabel(/^Target/).fill("release/prod-elsewhere");
    await page.getByRole("button", { name: /^Approve/ }).click();
    await expect(page.getByRole("alert").filter({ hasText: "That is not the target" })).toBeVisible();
    expect((await run.operation(operation.id)).state).toBe("pending");
    await page.getByLabel(/^Target/).fill(operation.target);
    await page.getByRole("button", { name: /^Approve/ }).click();
    await expect(told(page)).toContainText("Approved");
    expect(sent).toHaveLength(3);
  });
});

test("on a slow line only the pressed form is busy, and a second press sends nothing", { tag: "@scripts" }, async ({ page, person, run, signIn, awake }) => {
  const operation = await run.propose(ticket());
  await signIn(page, await person("approver"));
  await page.goto(`/operations/${operation.id}`);
  await awake(page);
  let go = () => {};
  const held = new Promise<void>((resolve) => (go = resolve));
  await page.route("**/decisions", async (route) => {
    await held;
    await route.continue();
  });
  const sent = posts(page);
  const approve = page.getByRole("button", { name: /^Approve/ });
  await approve.dblclick();
  await expect(approve).toBeDisabled();
  await expect(approve).toHaveAccessibleDescription("Sending.");
  await expect(page.getByRole("button", { name: "Reject" })).toBeEnabled();
  go();
  await expect(told(page)).toContainText("Approved");
  expect(sent).toHaveLength(1);
});

test.describe("on the other side of the world", () => {
  test.use({ timezoneId: "Pacific/Auckland", locale: "mi-NZ" });

  test("a page into which an extension writes still decides once", async ({ page, person, run, signIn, awake, javaScriptEnabled }) => {
    const operation = await run.propose(ticket());
    await page.addInitScript(() => {
      document.addEventListener("DOMContentLoaded", () => {
        for (const place of document.querySelectorAll("body, main, form, label, td, .stub, .p")) {
          place.prepend(document.createElement("ext-note"));
          place.append(document.createElement("ext-note"));
        }
      });
    });
    await signIn(page, await person("approver"));
    await page.goto(`/operations/${operation.id}`);
    await awake(page);
    if (javaScriptEnabled !== false) {
      await expect(page.locator(".match", { hasText: "Matches what you see" })).toBeVisible();
      await expect(page.locator("[data-zone]")).toContainText(/UTC\+1[23]/);
    }
    const sent = posts(page);
    await page.getByRole("button", { name: /^Approve/ }).click();
    await expect(told(page)).toContainText("Approved");
    expect(sent).toHaveLength(1);
    expect((await run.operation(operation.id)).version).toBe(operation.version + 1);
  });
});

test.describe("where something else writes into the islands themselves", () => {
  test.use({ tolerate: [[/panicked/, /unreachable/], { scope: "test" }] });

  test("the plain form still decides", { tag: "@scripts" }, async ({ page, person, run, signIn }) => {
    const operation = await run.propose(ticket());
    await page.addInitScript(() => {
      document.addEventListener("DOMContentLoaded", () => {
        for (const island of document.querySelectorAll("leptos-island")) island.prepend(document.createElement("ext-note"));
      });
    });
    await signIn(page, await person("approver"));
    await page.goto(`/operations/${operation.id}`);
    const sent = posts(page);
    await page.getByRole("button", { name: /^Approve/ }).click();
    await expect(told(page)).toContainText("Approved");
    expect(sent).toHaveLength(1);
  });
});

test.describe("decided elsewhere", () => {
  test.use({ tolerate: [[/409/, /ERR_FAILED/], { scope: "test" }] });

  test("a page that missed it says who decided and when, and keeps what was written", { tag: "@phone" }, async ({ page, person, run, signIn, awake, axe }) => {
    const operation = await run.propose(ticket());
    await page.route("**/api/v1/events", (route) => route.abort());
    await signIn(page, await person("approver"));
    await page.goto(`/operations/${operation.id}`);
    await awake(page);
    await (await person("operator")).decide(operation.id, "approve");

    const reject = page.getByRole("form", { name: "Reject" });
    await reject.getByRole("radio", { name: "Not now" }).check();
    await reject.getByLabel("Note").fill("Wait for the morning");
    await reject.getByRole("button", { name: "Reject" }).click();
    const decision = page.locator("#decide");
    await expect(decision.getByText(/^lin approved this at \d/)).toBeVisible();
    await expect(decision).toContainText("what you wrote is kept below");
    await expect(decision.getByRole("button", { name: /^(Approve|Reject)/ }).locator("visible=true").and(page.locator(":enabled"))).toHaveCount(0);
    const note = page.getByLabel("Note");
    if (await note.count()) await expect(note).toHaveValue("Wait for the morning");
    else await expect(decision.getByText("Wait for the morning")).toBeVisible();
    expect((await run.operation(operation.id)).state).toBe("approved");
    await axe(page);
  });

  test("an open page is told what happened, and stays as it was read", { tag: "@scripts" }, async ({ page, person, run, signIn, awake }) => {
    const operation = await run.propose(ticket());
    await signIn(page, await person("approver"));
    await page.goto(`/operations/${operation.id}`);
    await awake(page);
    await expect(page.locator(".live")).toContainText("Live");
    await page.getByLabel("Note").fill("half a sentence");
    await (await person("operator")).decide(operation.id, "approve");
    await expect(page.getByText(/This was approved/)).toBeVisible();
    await expect(page.getByLabel("Note")).toHaveValue("half a sentence");
  });
});

test.describe("too late", () => {
  test.use({ tolerate: [[/409/, /ERR_CONNECTION|ERR_FAILED|network/i], { scope: "test" }] });

  test("a deadline that passes on an open page closes the forms", async ({ page, ownDesk, signIn, javaScriptEnabled }) => {
    const { approver, run } = await ownDesk({ COUNTERFOIL_APPROVAL_TTL_S: "6", COUNTERFOIL_SWEEP_S: "0" });
    await signIn(page, approver);
    const operation = await run.propose(ticket());
    await page.goto(`${approver.url}/operations/${operation.id}`);
    await page.getByLabel("Note").fill("half a sentence");
    if (javaScriptEnabled === false) {
      await expect.poll(async () => (await run.operation(operation.id)).state).toBe("expired");
      await page.getByRole("radio", { name: "Other" }).check();
      await page.getByRole("button", { name: "Reject" }).click();
    }
    await expect(page.getByText(/^Expired at \d/).first()).toBeVisible();
    await expect(page.getByText(/Not approved, not rejected/).first()).toBeVisible();
    await expect(page.getByRole("button", { name: /^(Approve|Reject)/ }).and(page.locator(":enabled"))).toHaveCount(0);
    expect((await run.operation(operation.id)).state).toBe("expired");
  });
});

test.describe("after a crash", () => {
  test.use({ tolerate: [[/ERR_(CONNECTION|INCOMPLETE|EMPTY|NETWORK|SOCKET)/], { scope: "test" }] });

  test("a tab opened before still decides, and the agent that waited goes on waiting", async ({ page, ownDesk, signIn, awake }) => {
    const { server, approver, run } = await ownDesk();
    const proposed = [await run.propose(ticket()), await run.propose(ticket()), await run.propose(ticket())];
    const operation = proposed[1]!;
    const wait = () => run.http.get(`/api/v1/operations/${operation.id}?wait=30`, { headers: { "If-None-Match": '"1"' } });
    await signIn(page, approver);
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("3 wait for you");
    await page.goto(`${server.url}/operations/${operation.id}`);
    await awake(page);
    const cut = expect(wait()).rejects.toThrow();
    await server.stop("SIGKILL");
    await cut;
    await server.serve();

    const waiting = wait();
    await page.getByRole("button", { name: /^Approve/ }).click();
    await expect(told(page)).toContainText("may run it once");
    const woken = await waiting;
    expect(woken.status()).toBe(200);
    expect(await woken.json()).toMatchObject({ operation: { id: operation.id, state: "approved", fingerprint: operation.fingerprint } });
    await page.goto(server.url);
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("2 wait for you");
    await expect(page.locator(".row")).toHaveCount(2);
    for (const { id } of [proposed[0]!, proposed[2]!]) await expect(page.locator(`.row[data-id="${id}"]`)).toBeVisible();
  });
});
