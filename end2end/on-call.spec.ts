import { expect, test } from "./fixtures.ts";
import { ticket } from "./proposals.ts";
import { expectStatus } from "./server.ts";

// A form that is not taken answers 422.
test.use({ tolerate: [/Failed to load resource/] });

test("the on-call page counts what happened, in drawings with their tables", { tag: "@phone" }, async ({ page, ownDesk, signIn, awake, axe }) => {
  const { server, approver, run } = await ownDesk();
  const admin = await server.person("root", "admin", []);
  await signIn(page, admin);
  await page.goto(`${server.url}/on-call`);
  await awake(page);
  await expect(page.getByRole("heading", { name: "Nothing happened in this time" })).toBeVisible();
  await axe(page);

  const proposal = ticket();
  const first = await run.propose(proposal, "one-key-for-all-tries");
  await expectStatus(await run.tryPropose(proposal, "one-key-for-all-tries"), 202);
  await approver.decide(first.id, "approve");
  await run.carryOut(first, { status: "succeeded", provider_reference: "TCK-1" });
  const lost = await run.propose(ticket());
  await approver.decide(lost.id, "approve");
  await run.carryOut(lost, { status: "unknown" });
  await run.propose(ticket());

  await page.goto(`${server.url}/on-call?window=24h`);
  await awake(page);
  await expect(page.getByRole("link", { name: "24 hours" })).toHaveAttribute("aria-current", "page");
  const figure = (name: string) => page.locator(".ledger > div").filter({ hasText: name });
  await expect(figure("Unknown, open")).toContainText("1");
  await expect(figure("Waiting for a vote")).toContainText("oldest");
  await expect(figure("Duplicates stopped")).toContainText("1");
  await expect(figure("Cost, each done right")).toContainText("no unit costs are set");
  const duplicates = page.getByRole("figure", { name: /Duplicates stopped/ });
  const drawing = duplicates.getByRole("img", { name: "Duplicates stopped" });
  await expect(drawing).toHaveAccessibleDescription("1 under the same key, 0 for the same event, 0 of the same command");
  await duplicates.getByText("Table").click();
  await expect(duplicates.getByRole("row").filter({ hasText: "All" })).toContainText("1");
  const unknown = page.getByRole("figure", { name: /Unknown outcomes/ });
  await unknown.getByText("Table").click();
  await expect(unknown.getByRole("link")).toHaveAttribute("href", `/operations/${lost.id}`);
  await axe(page);

  await page.getByRole("link", { name: "Set unit costs" }).click();
  await awake(page);
  await axe(page);
  await page.getByLabel("Currency").fill("eur");
  await page.getByLabel("One vote").fill("150");
  await page.getByLabel(/One intervention/).fill("9,00");
  await page.getByLabel(/One minute/).fill("5");
  await page.getByLabel(/One effect/).fill("9000");
  await page.getByRole("button", { name: "Save" }).click();
  await expect(page.getByRole("alert")).toContainText("expected a whole number of minor units");
  await expect(page.getByLabel("One vote")).toHaveValue("150");
  await page.getByLabel(/One intervention/).fill("900");
  await page.getByRole("button", { name: "Save" }).click();
  await expect(figure("Cost, each done right")).toContainText("EUR 3.00");
});
