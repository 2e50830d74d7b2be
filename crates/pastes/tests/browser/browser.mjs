// Starts the Chromium of this machine.
import { existsSync } from "node:fs";
import puppeteer from "puppeteer-core";

const places = [
  process.env.CHROMIUM,
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
  "/Applications/Chromium.app/Contents/MacOS/Chromium",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];

export async function launch() {
  const executablePath = places.find((place) => place && existsSync(place));
  if (!executablePath) {
    throw new Error("no Chromium found: apt-get install chromium, or set CHROMIUM to its path");
  }
  // Without a sandbox only because tests also run as root in containers; the pages are our own.
  const args = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-color-profile=srgb"];
  return puppeteer.launch({ executablePath, args, headless: true, timeout: 180_000 });
}
