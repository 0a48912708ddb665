/** Pictures of the main pages over one populated desk, wide and phone, light and dark: `make shots`. */
import { join } from "node:path";
import { test } from "./fixtures.ts";
import { fresh, payment, release, ticket, transition } from "./proposals.ts";

const OUT = join(import.meta.dirname, "../target/shots");
const WIDTHS = [1440, 390];
const SCHEMES = ["light", "dark"] as const;

// Some pages are pictures of refusals.
test.use({ tolerate: [/Failed to load resource/] });

test("pictures", async ({ browser, server, person, run, signIn }) => {
  const asha = await person("approver");
  const admin = await person("admin");

  const pending = await run.propose({ ...ticket(), reason: "The certificate of staging ends on Friday." });
  await run.propose(transition());
  await run.propose(payment());
  const hidden = await run.propose(release({ service: "checkout\u202eipa-" }));
  const approved = await run.propose(release());
  await asha.decide(approved.id, "approve");
  const rejected = await run.propose(ticket("Delete the staging certificate"));
  await asha.decide(rejected.id, "reject");
  const succeeded = await run.propose(ticket("Open a ticket for the certificate"));
  await asha.decide(succeeded.id, "approve");
  await run.carryOut(succeeded, { status: "succeeded", provider_reference: "TCK-1" });
  const unknown = await run.propose(payment());
  await asha.decide(unknown.id, "approve");
  await run.carryOut(unknown, { status: "unknown" });

  const environment = fresh("prod");
  const live = await run.propose(release({ environment }));
  await asha.decide(live.id, "approve");
  await run.carryOut(live, { status: "succeeded", provider_reference: "deploy-1", resulting_version: 42 });
  const stale = await run.tryPropose(release({ environment }));
  const { operation: conflicted } = (await stale.json()) as { operation: { id: string } };
  const picks = [await run.propose(ticket()), await run.propose(transition())].map(({ id }) => `pick=${id}`).join("&");

  const pages: [name: string, path: string, who: typeof asha | null][] = [
    ["signin", "/sign-in", null],
    ["queue", "/", asha],
    ...["approved", "conflicts", "unknown", "expiring", "done"].map((lane): [string, string, typeof asha] => [`lane-${lane}`, `/?lane=${lane}`, asha]),
    ["decide", `/decide?${picks}`, asha],
    ["pending", `/operations/${pending.id}`, asha],
    ["hidden", `/operations/${hidden.id}`, asha],
    ["approved", `/operations/${approved.id}`, asha],
    ["rejected", `/operations/${rejected.id}`, asha],
    ["succeeded", `/operations/${succeeded.id}`, asha],
    ["conflicted", `/operations/${conflicted.id}`, asha],
    ["unknown", `/operations/${unknown.id}`, asha],
    ["unknown-list", "/unknown", asha],
    ["runs", "/runs", asha],
    ["run", `/runs/${run.id}`, asha],
    ["problems", "/problems", asha],
    ["problem", "/problems/already_decided", asha],
    ["not-found", "/operations/op_00000000000000000000000000", asha],
    ["audit", "/audit", admin],
    ["audit-operation", `/audit?operation=${succeeded.id}`, admin],
    ...["policies", "policies/edit", "kinds", "kinds/deployment.release", "kinds/new", "people", "agents", "executors", "pause", "sessions", "keyboard"].map(
      (page): [string, string, typeof asha] => [`settings-${page.replace("/", "-")}`, `/settings/${page}`, admin],
    ),
  ];

  for (const who of [null, asha, admin]) {
    const context = await browser.newContext({ baseURL: server.url });
    const page = await context.newPage();
    if (who) await signIn(page, who);
    for (const [name, path] of pages.filter(([, , viewer]) => viewer === who)) {
      for (const width of WIDTHS) {
        await page.setViewportSize({ width, height: 900 });
        for (const colorScheme of SCHEMES) {
          await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
          await page.goto(path);
          await page.screenshot({ path: join(OUT, `${name}-${width}-${colorScheme}.png`), fullPage: true });
        }
      }
    }
    await context.close();
  }
});
