import { defineConfig, devices } from "@playwright/test";

/** Debian's browser: a download of Playwright's own does not work everywhere. `make e2e` names it. */
export const browser = {
  browserName: "chromium" as const,
  launchOptions: {
    executablePath: process.env.COUNTERFOIL_CHROMIUM ?? "/usr/bin/chromium",
    args: [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  },
};

const desktop = { ...devices["Desktop Chrome"], viewport: { width: 1440, height: 900 } };

export default defineConfig({
  testDir: ".",
  testMatch: "*.spec.ts",
  outputDir: "test-results",
  fullyParallel: true,
  workers: 2,
  // How long a story takes on a busy machine says nothing about the desk; these only end one that hangs.
  timeout: 180_000,
  expect: { timeout: 30_000 },
  forbidOnly: true,
  reporter: [["list"]],
  use: { ...browser, locale: "en-GB", timezoneId: "Europe/Berlin", screenshot: "only-on-failure" },
  // `@scripts` marks what only scripts do, `@phone` what looks different on one.
  projects: [
    { name: "scripts-on", use: desktop },
    { name: "scripts-off", grepInvert: /@scripts/, use: { ...desktop, javaScriptEnabled: false } },
    { name: "phone", grep: /@phone/, use: { ...desktop, viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true } },
  ],
});
