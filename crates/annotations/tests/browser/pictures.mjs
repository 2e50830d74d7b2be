// Screenshots in both themes and two sizes: SCREENSHOTS=folder.

export async function pictures(page, name, about = "mark") {
  if (!process.env.SCREENSHOTS) return;
  for (const theme of ["light", "dark"]) {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
    for (const [width, height] of [[1280, 820], [390, 844]]) {
      await page.setViewport({ width, height });
      await page.evaluate((it) => document.querySelector(it)?.scrollIntoView({ block: "center" }), about);
      await page.screenshot({ path: `${process.env.SCREENSHOTS}/${name}-window-${theme}-${width}.png` });
    }
  }
  await page.setViewport({ width: 1280, height: 820 });
}
