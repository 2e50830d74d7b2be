// Steps that several checks share.
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";

/** Creates a paste as a program does; returns its code and token. Not yet readable: see `work`. */
export async function paste(base, text, query = "") {
  const signal = AbortSignal.timeout(90_000);
  const response = await fetch(`${base}/${query}`, { method: "POST", body: text, signal });
  if (response.status !== 201) throw new Error(`create: ${response.status} ${await response.text()}`);
  return { code: (await response.text()).trim().split("/").pop(), token: response.headers.get("x-delete-token") };
}

/** Fills in the form of the page and saves it. Returns the code. */
export async function save(watched, text, prepare = async () => {}) {
  const { page, base } = watched;
  await page.goto(`${base}/`);
  await page.locator("#content").fill(text);
  await prepare(page);
  await Promise.all([page.waitForNavigation(), page.locator(".save button").click()]);
  return new URL(page.url()).pathname.slice(1);
}

/** The text of the paste on the page. */
export const shownText = (page) => page.$eval("#code code", (code) => code.textContent);

/** Waits until a loaded page shows this. Evaluates from outside, so it works without scripts, too. */
export async function appears(page, selector) {
  const end = Date.now() + 90_000;
  while (Date.now() < end) {
    // A page that is being replaced cannot be evaluated.
    const there = await page
      .evaluate((it) => document.readyState === "complete" && document.querySelector(it) !== null, selector)
      .catch(() => false);
    if (there) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`no ${selector} within 90 s`);
}

/** Waits until the page announces this text to screen readers. */
export const announced = (page, text) =>
  page.waitForFunction((it) => document.querySelector("#announcements").textContent === it, {}, text);

/** Presses a key; returns whether the page handled it. */
export async function handled(page, key) {
  await page.evaluate(() => {
    window.addEventListener("keydown", (event) => { window.handled = event.defaultPrevented; }, { once: true });
  });
  await page.keyboard.press(key);
  return page.evaluate(() => window.handled);
}

export const clipboard = (page) => page.evaluate(() => navigator.clipboard.readText());

/** Lets the page read and write the clipboard, as a click in a focused window does. */
export async function allowClipboard(watched) {
  const { context, base, page } = watched;
  await context.overridePermissions(base, ["clipboard-read", "clipboard-sanitized-write"]);
  await page.bringToFront();
}

export const RUST = `\nfn main() {\n\tlet words = "<b>&amp;</b>"; // tabs, <tags>, été ☕\n    println!("{words}");\n}\n`;

/** Does something that downloads a file; returns its text. */
export async function downloaded(watched, act) {
  const { page, context } = watched;
  const folder = await mkdtemp(`${tmpdir()}/pastes-`);
  const client = await page.createCDPSession();
  await client.send("Browser.setDownloadBehavior", {
    behavior: "allowAndName",
    browserContextId: context.id,
    downloadPath: folder,
    eventsEnabled: true,
  });
  const arrived = new Promise((resolve, reject) => {
    client.on("Browser.downloadProgress", ({ state, guid }) => {
      if (state === "completed") resolve(guid);
      if (state === "canceled") reject(new Error("the download was cancelled"));
    });
    setTimeout(() => reject(new Error("no download within 90 s")), 90_000).unref();
  });
  await act();
  const text = await readFile(`${folder}/${await arrived}`, "utf8");
  await rm(folder, { recursive: true });
  return text;
}
