import { expect, test } from "./fixtures.ts";
import { fresh, ticket } from "./proposals.ts";

/** What makes a screen lie: overrides, isolates, the invisible, blanks, controls. */
const DECEIVERS: [string, string][] = [
  ["U+202E", "\u202e"],
  ["U+2066", "\u2066"],
  ["U+2067", "\u2067"],
  ["U+2068", "\u2068"],
  ["U+2069", "\u2069"],
  ["U+200B", "\u200b"],
  ["U+00AD", "\u00ad"],
  ["U+FEFF", "\ufeff"],
  ["U+2028", "\u2028"],
  ["U+E0100", "\u{e0100}"],
  ["U+3000", "\u3000".repeat(300)],
  ["U+001B", "\u001b"],
];

test("characters that make the screen lie are shown by number, and nothing is changed by it", { tag: "@phone" }, async ({ page, person, run, signIn, awake, axe, javaScriptEnabled }) => {
  test.slow();
  const title = DECEIVERS.map(([, text]) => `a${text}b`).join("");
  const operation = await run.propose({
    kind: "ticket.create",
    params: { project: fresh("ops"), title: title.slice(0, 290), description: title },
    reason: `please\u202e${title}`,
  });
  await signIn(page, await person("approver"));
  await page.goto(`/operations/${operation.id}`);
  await awake(page);

  const content = page.getByRole("region", { name: "Content" });
  for (const [number] of DECEIVERS) await expect(content.locator(".esc", { hasText: number }).first()).toBeVisible();
  await expect(content.locator("tr.heed")).toHaveCount(2);
  await expect(page.getByRole("heading", { name: "2 fields hold characters you cannot see" })).toBeVisible();
  await expect(page.locator("h1 .esc").first()).toBeVisible();
  await expect(page.getByRole("region", { name: "The agent says" }).locator(".esc").first()).toHaveText("U+202E");
  await expect(page.locator("[data-canonical] .esc").first()).toBeVisible();
  // None of them is left in any text of the page, and what is the agent's stands in isolation.
  const html = await (await page.request.get(`/operations/${operation.id}`)).text();
  expect(html).not.toMatch(/[\u202a-\u202e\u2066-\u2069\u200b\u00ad\ufeff\u2028\u3000\u001b]/);
  expect(html).toContain("<bdi");
  if (javaScriptEnabled !== false) await expect(page.locator(".match", { hasText: "Matches what you see" })).toBeVisible();
  await axe(page);
});

test("a target with such a character is refused, and a name in punycode is told", async ({ page, person, run, signIn, awake, axe }) => {
  const refused = await run.tryPropose({ kind: "ticket.create", params: { project: "ops\u202ex", title: "t" } });
  expect(refused.status()).toBe(422);
  const operation = await run.propose({
    kind: "user.invite",
    params: { email: `${fresh("nika")}@xn--pi-ukb.example.test`, role: "reader", workspace: "\u0430pi.example.test" },
  });
  await signIn(page, await person("approver"));
  await page.goto(`/operations/${operation.id}`);
  await awake(page);
  const content = page.getByRole("region", { name: "Content" });
  await expect(content.getByRole("row", { name: /^email/ })).toContainText("stands for");
  await expect(content.getByRole("row", { name: /^workspace/ })).toContainText("xn--");
  await expect(page.getByRole("heading", { name: /hold names that are not what they look like/ })).toBeVisible();
  await axe(page);
});

test("ordinary text of other scripts is left alone", async ({ page, person, run, signIn, awake, javaScriptEnabled }) => {
  const texts = ["क्\u200dषमा, नमस्\u200cते", "مرحبا بالعالم", "👨‍👩‍👧‍👦 ok ❤️", "प्रमाणपत्र बदलें"];
  const operation = await run.propose(ticket(texts.join(" · ")));
  await signIn(page, await person("approver"));
  await page.goto(`/operations/${operation.id}`);
  await awake(page);
  const row = page.getByRole("row", { name: /title/ });
  for (const text of texts) await expect(row).toContainText(text);
  await expect(page.locator(".esc")).toHaveCount(0);
  await expect(page.locator("tr.heed")).toHaveCount(0);
  if (javaScriptEnabled !== false) await expect(page.locator(".match", { hasText: "Matches what you see" })).toBeVisible();
});

test("what an agent writes stays text, wherever it stands", async ({ page, person, run, signIn, awake, javaScriptEnabled }) => {
  const attacks = [
    '<img src=x onerror="window.pwned=1">',
    "</script><script>window.pwned=1</script>",
    "</textarea><b>x</b>",
    "[x](javascript:window.pwned=1)",
    "```\n<svg onload=window.pwned=1>\n```",
    "{{7*7}}",
    "\" onmouseover=\"window.pwned=1",
  ];
  const text = attacks.join(" ");
  const operation = await run.propose({
    kind: "ticket.create",
    params: { project: fresh("ops"), title: text.replaceAll("\n", " ").slice(0, 300), description: text },
    reason: text,
  });
  const html = await (await (await person("approver")).api()).get(`/operations/${operation.id}`).then((reply) => reply.text());
  expect(html).not.toContain("<img src=x");
  expect(html).not.toContain("<svg onload");
  expect(html).not.toMatch(/<script>window/);
  expect(html).not.toMatch(/href="javascript:/);
  expect(html).toContain("{{7*7}}");

  await signIn(page, await person("approver"));
  await page.goto(`/operations/${operation.id}`);
  await awake(page);
  await expect(page.getByRole("row", { name: /description/ })).toContainText('<img src=x onerror="window.pwned=1">');
  await expect(page.locator(".effect")).toContainText("<img src=x");
  await expect(page.getByRole("link", { name: "x", exact: true })).toHaveCount(0);
  if (javaScriptEnabled !== false) {
    await expect(page.locator(".match", { hasText: "Matches what you see" })).toBeVisible();
    expect(await page.evaluate(() => (window as { pwned?: number }).pwned)).toBeUndefined();
  }
  // What a reviewer wrote comes back as text too.
  await page.getByRole("radio", { name: "Other" }).check();
  await page.getByLabel("Note").fill(text);
  await page.getByRole("button", { name: "Reject" }).click();
  await expect(page.locator("[data-toast]")).toContainText("Rejected");
  await expect(page.locator(".sig-note")).toContainText("</textarea><b>x</b>");
  if (javaScriptEnabled !== false) expect(await page.evaluate(() => (window as { pwned?: number }).pwned)).toBeUndefined();
});
