import { expect, test } from "./fixtures.ts";
import { Server } from "./server.ts";

test.describe("at the door", () => {
  test.use({ tolerate: [/40[13]|429|Failed to load resource/] });

  test("a wrong password says no more than that, and keeps the name", { tag: "@phone" }, async ({ page, person, axe }) => {
    const { name } = await person("approver", "mona");
    await page.goto("/sign-in");
    await axe(page);
    await page.getByLabel("Name").fill(name);
    await page.getByLabel("Password").fill("not the password");
    await page.getByRole("button", { name: "Sign in" }).click();
    await expect(page.getByRole("alert")).toHaveText("The name or the password is not right.");
    await expect(page.getByLabel("Name")).toHaveValue(name);
    await expect(page.getByLabel("Password")).toHaveValue("");
    await axe(page);

    await page.getByLabel("Name").fill("nobody-here");
    await page.getByLabel("Password").fill("not the password");
    await page.getByRole("button", { name: "Sign in" }).click();
    await expect(page.getByRole("alert")).toHaveText("The name or the password is not right.");
  });
});

test("whoever signs in comes out where they wanted to go", async ({ page, person }) => {
  const { name, password } = await person("approver");
  await page.goto("/runs?before=x");
  await expect(page).toHaveURL(/\/sign-in\?next=/);
  await page.getByLabel("Name").fill(name);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page).toHaveURL(/\/runs\?before=x$/);
});

test("the door leads to no other site", async ({ page, person, baseURL }) => {
  const { name, password } = await person("approver");
  await page.goto("/sign-in?next=https://evil.example.test/");
  await page.getByLabel("Name").fill(name);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page).toHaveURL(`${baseURL}/`);
});

test("signing out ends the session", { tag: "@phone" }, async ({ page, person, signIn, isMobile }) => {
  await signIn(page, await person("approver"));
  if (isMobile) await page.getByText("Desk ▾").click();
  await page.getByRole("button", { name: /^Sign out/ }).filter({ visible: true }).click();
  await expect(page).toHaveURL(/\/sign-in$/);
  await page.goto("/");
  await expect(page).toHaveURL(/\/sign-in$/);
});

test("the first start makes the first admin, once", { tag: "@phone" }, async ({ page, axe, tolerate }) => {
  tolerate.push(/404|422/);
  const server = await Server.start();
  try {
    const link = server.log().match(/Set up: (\S+)/)?.[1];
    expect(link).toBeTruthy();
    await page.goto(link!);
    await axe(page);
    await page.getByLabel("Name").fill("ada");
    await page.getByLabel("Password").fill("a long enough password");
    await page.getByRole("button", { name: "Make the account" }).click();
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("Nothing waits for you");
    await axe(page);

    await page.goto(link!);
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("There is nothing here for you");
    await axe(page);
  } finally {
    await server.remove();
  }
});

test("a page for each refusal says what it means and whether a new key is safe", async ({ page, axe }) => {
  await page.goto("/problems");
  await axe(page);
  await page.getByRole("link", { name: "stale_version" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("The resource has changed since it was read");
  await expect(page.getByText("412")).toBeVisible();
  await expect(page.getByText(/^Safe\./)).toBeVisible();
  await axe(page);
});
