import { expect, test } from "./fixtures.ts";
import { payment, release, ticket, transition } from "./proposals.ts";

test("the queue shows what waits for its reader, and nothing else", { tag: "@phone" }, async ({ page, person, run, agent, server, signIn, awake, axe }) => {
  const reader = await person("approver", "vera");
  const low = await run.propose(ticket());
  const grave = await run.propose(release());
  const own = await (await server.agent(`own-${agent.name}`, reader.name)).run();
  const mine = await own.propose(ticket("My own agent's"));

  await signIn(page, reader);
  await awake(page);
  const rows = page.locator(".row");
  await expect(rows.filter({ hasText: low.target })).toContainText(low.consequence);
  await expect(rows.filter({ hasText: grave.target })).toContainText("Critical");
  await expect(rows.filter({ hasText: mine.target })).toHaveCount(0);
  await axe(page);

  await page.goto("/?who=all");
  await expect(rows.filter({ hasText: mine.target })).toContainText("Your agent");
  // A phone hides the boxes; who may tick what is the same.
  const box = (code: string) => page.getByRole("checkbox", { name: `Select ${code}`, includeHidden: true });
  await expect(box(low.short_code)).toHaveCount(1);
  await expect(box(grave.short_code)).toHaveCount(0);
  await expect(box(mine.short_code)).toHaveCount(0);
});

test("filters and search are in the address", { tag: "@phone" }, async ({ page, person, run, signIn }) => {
  const wanted = await run.propose(transition());
  const other = await run.propose(ticket());
  await signIn(page, await person("approver"));
  const rows = page.locator(".row");

  await page.getByText("Kind", { exact: true }).click();
  await page.getByRole("link", { name: "ticket.transition" }).click();
  await expect(page).toHaveURL(/kind=ticket\.transition/);
  await expect(rows.filter({ hasText: wanted.target })).toHaveCount(1);
  await expect(rows.filter({ hasText: other.target })).toHaveCount(0);

  const search = page.getByRole("searchbox", { name: "Search" });
  await search.fill(wanted.short_code);
  await search.press("Enter");
  await expect(page).toHaveURL(/kind=ticket\.transition/);
  await expect(rows).toHaveCount(1);

  await search.fill("no-such-target");
  await search.press("Enter");
  await expect(page.getByRole("heading", { name: "No operation matches" })).toBeVisible();
  await page.getByRole("link", { name: "Clear filters" }).click();
  await expect(rows.filter({ hasText: other.target })).toHaveCount(1);
});

test("an empty lane says so and shows the way on", { tag: "@phone" }, async ({ page, ownDesk, signIn, axe }) => {
  const { server, approver } = await ownDesk();
  await signIn(page, approver);
  await page.goto(`${server.url}/?lane=conflicts`);
  await expect(page.getByRole("heading", { name: "No conflicts" })).toBeVisible();
  await axe(page);
  await page.getByRole("link", { name: "To the desk" }).click();
  await expect(page).toHaveURL(`${server.url}/`);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Nothing waits for you");
});

test("every lane is accessible with what stands in it", { tag: ["@scripts", "@phone"] }, async ({ page, person, run, signIn, awake, axe }) => {
  const approver = await person("approver");
  const [approved, lost, done, rejected] = [await run.propose(ticket()), await run.propose(payment()), await run.propose(transition()), await run.propose(ticket())];
  for (const operation of [approved, lost, done]) await approver.decide(operation.id, "approve");
  await run.carryOut(lost, { status: "unknown" });
  await run.carryOut(done, { status: "succeeded", provider_reference: "T-1" });
  await approver.decide(rejected.id, "reject");
  await signIn(page, approver);
  for (const [lane, operations] of [["approved", [approved]], ["unknown", [lost]], ["done", [done, rejected]], ["expiring", []]] as const) {
    await page.goto(`/?lane=${lane}`);
    await awake(page);
    for (const { id } of operations) await expect(page.locator(`.row[data-id="${id}"]`)).toBeVisible();
    await axe(page);
  }
});

test("what was ticked is decided, item by item, and nothing else", async ({ page, person, run, signIn, awake, axe }) => {
  const [first, second, left] = [await run.propose(ticket()), await run.propose(transition()), await run.propose(ticket())];
  const reader = await person("approver");
  await signIn(page, reader);
  await awake(page);

  await expect(page.getByRole("button", { name: "Decide the selected" })).toBeHidden();
  await page.getByRole("checkbox", { name: `Select ${first.short_code}` }).check();
  await page.getByRole("checkbox", { name: `Select ${second.short_code}` }).check();
  const late = await run.propose(ticket("Arrived meanwhile"));
  await page.getByRole("button", { name: "Decide the selected" }).click();

  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Decide 2 operations");
  for (const operation of [first, second]) {
    await expect(page.getByText(operation.fingerprint)).toBeVisible();
    await expect(page.getByText(operation.target).first()).toBeVisible();
  }
  await axe(page);

  // Somebody is faster with one of the two.
  expect((await (await person("operator")).decide(second.id, "reject")).status()).toBe(200);
  await page.getByRole("button", { name: "Approve 2" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("1 of 2 approved");
  await expect(page.getByRole("listitem").filter({ hasText: first.target })).toContainText("Approved");
  await expect(page.getByRole("listitem").filter({ hasText: second.target })).toContainText("Rejected by lin");
  await axe(page);

  expect((await run.operation(first.id)).state).toBe("approved");
  for (const untouched of [left, late]) expect((await run.operation(untouched.id)).state).toBe("pending");
});

test("what a filter took out of sight is not decided, and each of the others has its answer", async ({ page, person, run, agent, server, signIn, awake, javaScriptEnabled }) => {
  const reader = await person("approver", "vera");
  const hidden = [await run.propose(ticket()), await run.propose(ticket()), await run.propose(ticket())];
  const wanted = [await run.propose(transition()), await run.propose(transition()), await run.propose(transition())];
  const own = await (await server.agent(`vera-${agent.name}`, reader.name)).run();
  await signIn(page, reader);
  await awake(page);
  const box = ({ short_code }: { short_code: string }) => page.getByRole("checkbox", { name: `Select ${short_code}` });
  for (const operation of hidden) await box(operation).check();
  await page.getByText("Kind", { exact: true }).click();
  await page.getByRole("link", { name: "ticket.transition" }).click();
  await awake(page);
  await expect(page.locator(".row [name=pick]:checked")).toHaveCount(0);

  const late = [await run.propose(transition()), await own.propose(transition())];
  if (javaScriptEnabled === false) await page.reload();
  await expect(box(late[0]!)).toBeVisible();
  for (const operation of [...wanted, late[0]!]) await box(operation).check();
  await page.getByRole("button", { name: "Decide the selected" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Decide 4 operations");
  for (const { fingerprint } of [...wanted, late[0]!]) await expect(page.getByText(fingerprint)).toBeVisible();
  for (const { fingerprint } of [...hidden, late[1]!]) await expect(page.getByText(fingerprint)).toHaveCount(0);

  await run.propose({ ...transition(), supersedes: wanted[1]!.id });
  expect((await run.http.post(`/api/v1/operations/${wanted[2]!.id}/cancel`, { data: { reason: "no longer" } })).status()).toBe(200);
  await page.getByRole("button", { name: "Approve 4" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("2 of 4 approved");
  const answer = ({ target }: { target: string }) => page.getByRole("listitem").filter({ hasText: target });
  await expect(answer(wanted[1]!)).toContainText(/superseded/i);
  await expect(answer(wanted[2]!)).toContainText(/cancelled/i);
  for (const operation of [wanted[0]!, late[0]!]) expect((await run.operation(operation.id)).state).toBe("approved");
  for (const operation of hidden) expect((await run.operation(operation.id)).state).toBe("pending");
  expect((await own.operation(late[1]!.id)).state).toBe("pending");
});

test("a bulk never holds what takes care", async ({ page, person, run, signIn }) => {
  const grave = await run.propose(payment());
  await signIn(page, await person("approver"));
  await page.goto(`/decide?pick=${grave.id}&pick=op_nonsense`);
  await expect(page.getByRole("heading", { name: "Nothing is left to decide" })).toBeVisible();
  await expect(page.getByText("high risk is decided one at a time")).toBeVisible();
});

test("a rejection in bulk names its reason", async ({ page, person, run, signIn }) => {
  const operation = await run.propose(ticket());
  await signIn(page, await person("approver"));
  await page.goto(`/decide?pick=${operation.id}`);
  await page.getByRole("radio", { name: "Duplicate" }).check();
  await page.getByLabel("In your words, to each agent").fill("Two of these were asked for");
  await page.getByRole("button", { name: "Reject 1" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("1 of 1 rejected");
  expect((await run.operation(operation.id)).state).toBe("rejected");
});

test("what an agent writes is text on every list", async ({ page, person, run, signIn }) => {
  const title = "</script><img src=x onerror=alert(1)> {{7*7}} \u202etxt";
  const operation = await run.propose(ticket(title));
  await signIn(page, await person("approver"));
  const row = page.locator(".row").filter({ hasText: operation.target });
  await expect(row).toContainText("</script><img src=x onerror=alert(1)> {{7*7}}");
  await expect(row).toContainText("U+202E");
  await expect(row).toContainText("1 hidden character");
  await expect(row.locator("img")).toHaveCount(0);
  const html = await (await page.request.get("/")).text();
  expect(html).toContain("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt; {{7*7}}");
  expect(html).not.toContain("\u202e");
});

test.describe("live", { tag: "@scripts" }, () => {
  test("a row comes by itself, and one decided elsewhere says by whom before it leaves", async ({ page, person, run, signIn, awake }) => {
    await signIn(page, await person("approver"));
    await awake(page);
    await expect(page.locator(".live")).toContainText("Live,");

    const operation = await run.propose(ticket());
    const row = page.locator(`.row[data-id="${operation.id}"]`);
    await expect(row).toBeVisible();
    const clock = row.locator("time[data-left]");
    const before = await clock.textContent();
    await expect(clock).not.toHaveText(before ?? "");

    expect((await (await person("operator")).decide(operation.id, "approve")).status()).toBe(200);
    await expect(row).toHaveClass(/row-gone/);
    await expect(row).toContainText("approved by lin");
    await expect(row.getByRole("link")).toHaveCount(0);
    await expect(row).toHaveCount(0, { timeout: 15_000 });
  });

  test("an older answer never replaces a newer one", async ({ page, person, run, signIn, awake }) => {
    const operation = await run.propose(ticket());
    await signIn(page, await person("approver"));
    await awake(page);
    const row = page.locator(`.row[data-id="${operation.id}"]`);
    await expect(row).toBeVisible();
    await expect(page.locator(".live")).toContainText("Live,");
    // This page has seen a version that the next answers know nothing of.
    await row.evaluate((element) => element.setAttribute("data-version", "99"));
    await row.locator(".row-effect").evaluate((element) => (element.textContent = "the newest"));
    await row.getByRole("link").focus();
    const next = await run.propose(ticket());
    await expect(page.locator(`.row[data-id="${next.id}"]`)).toBeVisible();
    await expect(row).toContainText("the newest");
    await expect(row.getByRole("link"), "what is new takes nobody's focus").toBeFocused();
  });

  test("a row whose time is up says so and leaves, before any sweeper", async ({ page, ownDesk, signIn }) => {
    const { approver, run } = await ownDesk({ COUNTERFOIL_APPROVAL_TTL_S: "8", COUNTERFOIL_SWEEP_S: "0" });
    await signIn(page, approver);
    await expect(page.locator(".live")).toContainText("Live,");
    const operation = await run.propose(ticket());
    const row = page.locator(`.row[data-id="${operation.id}"]`);
    await expect(row).toBeVisible();
    await expect(row).toHaveClass(/row-gone/);
    await expect(row).toContainText("expired");
    await expect(row.getByRole("checkbox")).toHaveCount(0);
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("Nothing waits for you");
  });

  test("a lost connection is said, and found again", async ({ page, ownDesk, signIn, tolerate }) => {
    tolerate.push(/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_EMPTY_RESPONSE|ERR_NETWORK/);
    const { server, approver } = await ownDesk();
    await signIn(page, approver);
    await expect(page.locator(".live")).toContainText("Live,");

    await server.stop();
    const notice = page.getByRole("status").filter({ hasText: "Not live since" });
    await expect(notice).toContainText("Deciding still works");

    await server.serve();
    await expect(page.locator(".live")).toContainText("Live,");
    await expect(notice).toHaveCount(0);
  });
});

test.describe("keys", { tag: "@scripts" }, () => {
  test("keys move, open, select and search, and can be turned off", async ({ page, person, run, signIn, awake }) => {
    await run.propose(ticket());
    await run.propose(ticket());
    await signIn(page, await person("approver"));
    await awake(page);
    const current = page.locator(".row[aria-current]");

    await page.keyboard.press("j");
    await expect(current).toHaveCount(1);
    const first = await current.getAttribute("data-id");
    await page.keyboard.press("j");
    expect(await current.getAttribute("data-id")).not.toBe(first);
    await page.keyboard.press("k");
    expect(await current.getAttribute("data-id")).toBe(first);

    await page.keyboard.press("/");
    await expect(page.getByRole("searchbox", { name: "Search" })).toBeFocused();
    await page.keyboard.type("jkx");
    await expect(page.getByRole("searchbox", { name: "Search" })).toHaveValue("jkx");
    await page.keyboard.press("Escape");
    await expect(page.getByRole("searchbox", { name: "Search" })).not.toBeFocused();

    await page.keyboard.press("?");
    await expect(page.getByRole("dialog", { name: "Keys" })).toBeVisible();
    await page.getByRole("button", { name: "Turn the keys off" }).click();
    await page.keyboard.press("Escape");
    await expect(page.getByRole("dialog", { name: "Keys" })).toBeHidden();
    await page.keyboard.press("j");
    expect(await current.getAttribute("data-id")).toBe(first);

    await page.goto("/settings/keyboard");
    await awake(page);
    await expect(page.getByText("Off in this browser.")).toBeVisible();
    await page.getByRole("button", { name: "Turn the keys on" }).click();
    await page.goto("/");
    await awake(page);
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await expect(page).toHaveURL(/\/operations\/op_/);
  });

  test("a key picks a row for the selection", async ({ page, person, run, signIn, awake }) => {
    const operation = await run.propose(ticket());
    await signIn(page, await person("approver"));
    await page.goto(`/?q=${operation.short_code}`);
    await awake(page);
    await page.keyboard.press("j");
    await page.keyboard.press("x");
    await expect(page.getByRole("checkbox", { name: `Select ${operation.short_code}` })).toBeChecked();
    await expect(page.getByText("1 selected")).toBeVisible();
    await page.keyboard.press("Escape");
    await expect(page.getByText("1 selected")).toBeHidden();
  });
});
