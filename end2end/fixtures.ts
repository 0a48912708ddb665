/** What every story starts from: a server, people, an agent's run, and pages that must stay free of complaints. */
import { AxeBuilder } from "@axe-core/playwright";
import { test as base, expect, type Page } from "@playwright/test";
import { fresh } from "./proposals.ts";
import { type Agent, type Person, type Role, type Run, Server } from "./server.ts";

export { expect };

const NAMES: Record<Role, string> = { approver: "asha", viewer: "omar", operator: "lin", admin: "admin", auditor: "auditor" };

interface WorkerFixtures {
  server: Server;
  /** The person of a role; a name asks for another one. Approvers, operators and admins may vote. */
  person: (role: Role, name?: string) => Promise<Person>;
}

/** A desk of one story's own, to stop, restart or set up differently. */
interface OwnDesk {
  server: Server;
  approver: Person;
  run: Run;
}

interface TestFixtures {
  /** Console messages a story provokes on purpose, such as the browser's note of a 403 page. */
  tolerate: RegExp[];
  /** Fails the story on console errors, uncaught errors and refusals of the content security policy. */
  noComplaints: void;
  /** A new agent, owned by the viewer. */
  agent: Agent;
  /** A run of that agent. */
  run: Run;
  /** Starts a desk for this story alone. */
  ownDesk: (settings?: NodeJS.ProcessEnv) => Promise<OwnDesk>;
  /** Signs a person in through the form and waits for the queue. */
  signIn: (page: Page, person: Person) => Promise<void>;
  /** Waits until the islands of a page answer; nothing to wait for with scripts off. */
  awake: (page: Page) => Promise<void>;
  /** Accessibility rules, in light and in dark; checks nothing with scripts off. */
  axe: (page: Page) => Promise<void>;
}

export const test = base.extend<TestFixtures, WorkerFixtures>({
  server: [
    async ({}, use) => {
      const server = await Server.start();
      await use(server);
      await server.remove();
    },
    { scope: "worker" },
  ],

  person: [
    async ({ server }, use) => {
      const known = new Map<string, Promise<Person>>();
      await use((role, name = NAMES[role]) => {
        const votes = role === "approver" || role === "operator" || role === "admin";
        const person = known.get(name) ?? server.person(name, role, votes ? ["approvers"] : []);
        known.set(name, person);
        return person;
      });
    },
    { scope: "worker" },
  ],

  baseURL: async ({ server }, use) => use(server.url),

  tolerate: [[], { option: true }],

  noComplaints: [
    async ({ context, tolerate, server }, use, info) => {
      const complaints: string[] = [];
      context.on("console", (message) => {
        if (message.type() === "error" || message.type() === "warning") complaints.push(message.text());
      });
      context.on("weberror", (error) => complaints.push(`uncaught: ${error.error().message}`));
      await context.addInitScript(() => {
        document.addEventListener("securitypolicyviolation", (event) => {
          console.error(`CSP ${event.effectiveDirective} refused ${event.blockedURI} ${event.sourceFile}:${event.lineNumber} ${event.sample}`);
        });
      });
      await use();
      const heard = complaints.filter((text) => !tolerate.some((known) => known.test(text)));
      if (heard.length > 0 || info.status !== info.expectedStatus) {
        await info.attach("server.log", { body: server.log(), contentType: "text/plain" });
      }
      expect(heard, "console").toEqual([]);
    },
    { auto: true },
  ],

  agent: async ({ server, person }, use) => {
    const owner = await person("viewer");
    await use(await server.agent(fresh("deployer"), owner.name));
  },

  run: async ({ agent }, use) => use(await agent.run()),

  ownDesk: async ({ context }, use) => {
    const servers: Server[] = [];
    await use(async (settings) => {
      const server = await Server.start(settings);
      servers.push(server);
      const approver = await server.person("asha", "approver", ["approvers"]);
      const owner = await server.person("omar", "viewer", []);
      return { server, approver, run: await (await server.agent("clerk", owner.name)).run() };
    });
    // An open page would look for its desk and complain that it is gone.
    for (const page of context.pages()) await page.close();
    for (const server of servers) await server.remove();
  },

  signIn: async ({}, use) => {
    await use(async (page, person) => {
      await page.goto(`${person.url}/sign-in`);
      await page.getByLabel("Name").fill(person.name);
      await page.getByLabel("Password").fill(person.password);
      await page.getByRole("button", { name: "Sign in" }).click();
      await expect(page.getByRole("navigation", { name: "Lanes" })).toBeVisible();
    });
  },

  awake: async ({ javaScriptEnabled }, use) => {
    await use(async (page) => {
      if (javaScriptEnabled !== false) await expect(page.locator("[data-live]").first()).toBeAttached();
    });
  },

  axe: async ({ javaScriptEnabled }, use) => {
    await use(async (page) => {
      // The checker is itself a script; the HTML it would see is the one the other projects check.
      if (javaScriptEnabled === false) return;
      for (const colorScheme of ["light", "dark"] as const) {
        // Without motion a colour is there at once.
        await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
        // Legacy mode leaves out frames of other origins; no page has one, and it is twice as fast.
        const checker = new AxeBuilder({ page }).setLegacyMode();
        // Between the schemes only colours differ.
        if (colorScheme === "dark") checker.withRules(["color-contrast", "link-in-text-block"]);
        const { violations } = await checker.analyze();
        const found = violations.map(({ id, help, nodes }) => ({ id, help, at: nodes.map((node) => node.target.join(" ")) }));
        expect(found, `accessibility, ${colorScheme}`).toEqual([]);
      }
      await page.emulateMedia({ colorScheme: null, reducedMotion: null });
    });
  },
});
