/** Pictures of the main pages over one populated desk, wide and phone, light and dark: `make shots`. */
import { join } from "node:path";
import { comment, finish, openSet, part, redo, refund, reversible } from "./change-sets.ts";
import { test } from "./fixtures.ts";
import { Provider } from "./provider.ts";
import { fresh, payment, release, ticket, transition } from "./proposals.ts";
import { collide, create, policy } from "./resources.ts";
import { expectStatus, type Members } from "./server.ts";

const OUT = join(import.meta.dirname, "../target/shots");
const WIDTHS = [1440, 390];
/** `ONLY=conflict` narrows them. */
const ONLY = new RegExp(process.env.ONLY ?? "");
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

  const repeated = ticket("Renew the certificate of production");
  await run.propose(repeated, "shots-repeated-key-1");
  for (let i = 0; i < 3; i++) await run.tryPropose(repeated, "shots-repeated-key-1");
  await run.propose(repeated);
  const provider = await Provider.start();
  await provider.declare(admin, "payments", ["payment.*"]);
  await provider.prove(admin, "payments");
  const found = await run.propose(payment());
  await asha.decide(found.id, "approve");
  await run.carryOut(found, { status: "unknown" });

  const word = { finding: "not_applied", kind: "statement", observed_at: new Date().toISOString(), note: "I do not think the request left the host." };
  await expectStatus(await run.http.post(`/api/v1/operations/${found.id}/evidence`, { data: word }), 201);
  const capture = { order: found.target.replace("order/", ""), authorization: "auth-91", amount_minor: 14900, currency: "EUR" };
  const waiting = await run.propose({ kind: "payment.capture", params: capture });
  await asha.decide(waiting.id, "approve");

  const environment = fresh("prod");
  const live = await run.propose(release({ environment }));
  await asha.decide(live.id, "approve");
  await run.carryOut(live, { status: "succeeded", provider_reference: "deploy-1", resulting_version: 42 });
  const stale = await run.tryPropose(release({ environment }));
  const { operation: conflicted } = (await stale.json()) as { operation: { id: string } };
  const picks = [await run.propose(ticket()), await run.propose(transition())].map(({ id }) => `pick=${id}`).join("&");
  const lin = await person("operator");
  await expectStatus(await (await lin.api()).post(`/api/v1/operations/${found.id}/case`, { data: { owner: "lin" } }), 200);
  const tuner = await server.agent("alert-tuner", "omar");
  const filter = await server.agent("noise-filter", "omar");
  const scope = "notification-policy/*";
  const planning = await tuner.run({ label: "night shift", write_set: [{ resource: scope, verbs: ["create", "replace", "update", "lease"] }] });
  const raising = await filter.run({ label: "hourly", write_set: [{ resource: scope, verbs: ["create", "update"] }], reads: ["release/prod-eu"] });
  const wider: Members = { ...policy, dedupe_window_s: 600, escalate_after_s: 1800, destinations: ["pager-eu", "ops-mail", "pager-apac"] };
  const raised: Members = { severity: "critical", escalate_after_s: 600 };
  const reason = "Alerts fire twice for one incident. Widening the window and adding the APAC pager. Escalation can wait longer at night.";
  const met = await collide(planning, raising, asha, { proposed: wider, patch: raised, reason });
  const replanned = await collide(planning, raising, asha, { proposed: wider, patch: raised, reason });
  const api = await lin.api();
  const instruction = "Keep severity at critical and escalate_after_s at 600. Propose only dedupe_window_s 600 and pager-apac, as an update.";
  await expectStatus(await api.post(`/api/v1/conflicts/${replanned.conflict}/resolution`, { data: { action: "replan", instruction } }), 200);
  const patch = { dedupe_window_s: 600, destinations: ["pager-eu", "ops-mail", "pager-apac"] };
  const again = await planning.propose({ kind: "resource.update", target: replanned.target, expected_version: 2, params: { patch }, replans: replanned.loser.id });
  const held = await create(planning, asha, policy, "notification-policy/staging-alerts");
  const update = await planning.propose({ kind: "resource.update", target: held, expected_version: 1, params: { patch: { severity: "low", owner: null } } });
  const leased = await planning.http.post("/api/v1/leases", { data: { resource: held, ttl_s: 300 } });
  const { lease } = await expectStatus<{ lease: { id: string } }>(leased, 201);
  const ahead = { kinds: ["resource.update"], targets: ["notification-policy/team-*"], max_count: 5, expires_in_s: 3600, reason: "Tuning tonight" };
  await expectStatus(await (await asha.api()).post(`/api/v1/runs/${planning.id}/approvals`, { data: ahead }), 200, 201);
  const check = "/conflict-map?write=notification-policy/prod-x%20replace";

  const set = await openSet(run, "Refund the lost parcel of order 4711", [refund(), comment("c1"), reversible("Ask the carrier")]);
  await finish(run, asha, await part(run, set, 1), { status: "succeeded", provider_reference: "re_1" });
  await finish(run, asha, await part(run, set, 2), { status: "failed" });
  await redo(run, set, { step: 2, params: comment("c2").params });
  const back = await openSet(run, "Rotate both certificates of staging", [reversible("Rotate one"), reversible("Rotate the other")]);
  for (const step of [1, 2]) await finish(run, asha, await part(run, back, step), { status: "succeeded", provider_reference: `OPS-${step}` });
  await expectStatus(await api.post(`/api/v1/change-sets/${back.id}/compensate`, { data: { reason: "The wrong host" } }), 200);
  await finish(run, asha, await part(run, back, 2, "compensated_by"), { status: "failed" });
  const undone = await part(run, back, 2);

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
    ["unknown-declared", `/operations/${found.id}`, lin],
    ["unknown-held", `/operations/${waiting.id}`, lin],
    ["unknown-list", "/unknown", asha],
    ["conflicts", "/conflicts", asha],
    ["conflict", `/conflicts/${met.conflict}`, lin],
    ["conflict-unified", `/conflicts/${met.conflict}?view=unified`, lin],
    ["conflict-replanned", `/conflicts/${replanned.conflict}`, lin],
    ["conflict-operation", `/operations/${met.loser.id}`, asha],
    ["replan", `/operations/${again.id}`, asha],
    ["update", `/operations/${update.id}`, asha],
    ["resources", "/resources", asha],
    ["resource", `/resources/${met.target}`, asha],
    ["leases", "/leases", asha],
    ["lease", `/leases/${lease.id}`, lin],
    ["conflict-map", "/conflict-map", asha],
    ["conflict-map-checked", check, asha],
    ["run-planning", `/runs/${planning.id}`, asha],
    ["change-set", `/change-sets/${set.id}`, lin],
    ["change-set-stuck", `/change-sets/${back.id}`, lin],
    ["change-set-step", `/operations/${undone.id}`, asha],
    ["runs", "/runs", asha],
    ["on-call", "/on-call", asha],
    ["on-call-day", "/on-call?window=24h", lin],
    ["run", `/runs/${run.id}`, asha],
    ["problems", "/problems", asha],
    ["problem", "/problems/already_decided", asha],
    ["not-found", "/operations/op_00000000000000000000000000", asha],
    ["audit", "/audit", admin],
    ["audit-operation", `/audit?operation=${succeeded.id}`, admin],
    ...["policies", "policies/edit", "kinds", "kinds/deployment.release", "kinds/new", "providers", "costs", "people", "agents", "executors", "pause", "sessions", "keyboard"].map(
      (page): [string, string, typeof asha] => [`settings-${page.replace("/", "-")}`, `/settings/${page}`, admin],
    ),
  ];

  for (const who of [null, asha, lin, admin]) {
    const context = await browser.newContext({ baseURL: server.url });
    const page = await context.newPage();
    if (who) await signIn(page, who);
    for (const [name, path] of pages.filter(([name, , viewer]) => viewer === who && ONLY.test(name))) {
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
  await provider.stop();
});
