import { defineConfig } from "@playwright/test";
import { browser } from "./playwright.config.ts";

export default defineConfig({
  testDir: ".",
  testMatch: "shots.ts",
  outputDir: "test-results",
  workers: 1,
  timeout: 180_000,
  reporter: [["list"]],
  use: { ...browser, locale: "en-GB", timezoneId: "Europe/Berlin" },
});
