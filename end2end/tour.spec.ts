/** The README's tour, its commands taken from the README and run as they stand there. */
import { readFileSync } from "node:fs";
import { expect, test } from "./fixtures.ts";
import { type Person, Server, Shell } from "./server.ts";

const README = readFileSync("../README.md", "utf8");

/** The commands between two headings, without those that only start the server. */
function commands(from: string, to: string): string[] {
  const section = README.slice(README.indexOf(from), README.indexOf(to));
  const blocks = [...section.matchAll(/```sh\n([\s\S]*?)```/g)].map((block) => block[1] ?? "");
  return blocks.filter((block) => block.trim() !== "make run");
}

const PEOPLE = {
  omar: { name: "omar", password: "a password of omar's own" },
  asha: { name: "asha", password: "correct horse battery" },
};

test.describe("a newcomer", { tag: "@scripts" }, () => {
  test("follows the README to a verified log", async ({ page, browser, signIn }) => {
    const server = await Server.start();
    const shell = new Shell(server);
    const somebody = (who: { name: string; password: string }) => ({ ...who, url: server.url }) as Person;
    try {
      const [agent, propose, carryOut, repeat, prove] = commands("## A tour in five minutes", "## How it flows");
      if (!agent || !propose || !carryOut || !repeat || !prove) throw new Error("the README's tour has other steps");

      const link = /Set up: (\S+)/.exec(server.log())?.[1];
      expect(link).toBeDefined();
      await page.goto(link ?? "");
      await page.getByLabel("Name").fill(PEOPLE.omar.name);
      await page.getByLabel("Password").fill(PEOPLE.omar.password);
      await page.getByRole("button").last().click();
      await expect(page.getByRole("navigation", { name: "Lanes" })).toBeVisible();

      await shell.run(agent);
      const waiting = shell.run(propose);
      const address = await shell.printed(/http:\S+\/operations\/\S+/);
      const visitor = await (await browser.newContext()).newPage();
      await signIn(visitor, somebody(PEOPLE.asha));
      await visitor.goto(address);
      await visitor.getByRole("button", { name: "Approve" }).click();
      await expect(visitor.getByText(/approved/i).first()).toBeVisible();
      expect(await waiting).toMatch(/approved\n$/);

      expect(await shell.run(carryOut)).toBe("sent\nsucceeded\n");
      expect(await shell.run(repeat)).toBe("replayed\n['/params/title']\n");
      const proof = await shell.run(prove);
      expect(proof).toContain("verified");
      expect(proof).toContain("tampered");

      const [tuner] = commands("## Resources, versions, conflicts", "## Runs that share a world");
      await shell.run(tuner ?? "");
      await visitor.goto(await shell.printed(/http:\S+\/operations\/\S+/));
      await visitor.getByRole("button", { name: "Approve" }).click();
      const read = 'curl -si $API/resources/notification-policy/prod-alerts -H "Authorization: Bearer $TUNER"';
      expect(README).toContain(read);
      await expect.poll(() => shell.run(read)).toMatch(/etag: "1"/i);

      const [rotate] = commands("## Change sets", "## The API and the command line");
      expect(await shell.run(rotate ?? "")).toBe("{'step': 1, 'part': 'write', 'progress': 'decision', 'refused': None}\n");
      await visitor.context().close();
    } finally {
      await page.close();
      shell.close();
      await server.remove();
    }
  });
});
