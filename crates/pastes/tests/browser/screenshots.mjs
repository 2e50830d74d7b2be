// Takes pictures of every sample page: node screenshots.mjs BASE_URL FOLDER [NAME…]
// The samples are served by `cargo run -p pastes --example pages`.
import { mkdir } from "node:fs/promises";
import { launch } from "./browser.mjs";

const [base, folder, ...only] = process.argv.slice(2);
await mkdir(folder, { recursive: true });
const browser = await launch();
try {
  const page = await browser.newPage();
  await page.goto(base);
  const names = await page.$$eval("a", (links) => links.map((link) => link.textContent));
  for (const name of only.length > 0 ? only : names) {
    for (const theme of ["light", "dark"]) {
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
      for (const width of [1280, 360]) {
        await page.setViewport({ width, height: width === 360 ? 740 : 820 });
        await page.goto(`${base}/sample/${name}`);
        const path = `${folder}/${name}-${theme}-${width}.png`;
        await page.screenshot({ path, fullPage: name !== "large" });
      }
    }
  }
} finally {
  await browser.close();
}
