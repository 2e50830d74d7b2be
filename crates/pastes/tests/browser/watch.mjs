// A page that records what goes wrong on it: scripts, policies, requests to other hosts.
import { audit } from "./audit.mjs";

const themes = ["light", "dark"];
const sizes = [
  { width: 1280, height: 820 },
  { width: 360, height: 740 },
];

/** Opens a page in a context of its own: no cookies, nothing stored. */
export async function open(browser, base, { scripts = true } = {}) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  page.setDefaultTimeout(90_000);
  await page.setJavaScriptEnabled(scripts);
  const watched = { page, context, base, wrong: [], scripts };
  const complain = (text) => watched.wrong.push(text);

  page.on("pageerror", (error) => complain(`script error: ${error.message}`));
  page.on("dialog", async (dialog) => {
    complain(`a dialog opened: ${dialog.message()}`);
    await dialog.dismiss();
  });
  page.on("request", (request) => {
    const url = new URL(request.url());
    const ours = url.origin === base || url.protocol === "data:" || url.protocol === "blob:";
    if (!ours) complain(`request to ${url.origin}`);
  });
  // Chromium logs a status other than 200 as an error, too; some checks request such pages on purpose.
  page.on("console", (message) => {
    const status = /the server responded with a status of (\d+)/.exec(message.text())?.[1];
    if (status && ["403", "404", "409", "413", "422", "503"].includes(status)) return;
    if (["error", "warn"].includes(message.type())) complain(`console: ${message.text()}`);
  });
  // Also without scripts in the page: the protocol reports what the policy refused.
  const client = await page.createCDPSession();
  await client.send("Audits.enable");
  client.on("Audits.issueAdded", ({ issue }) => {
    if (issue.code === "ContentSecurityPolicyIssue") {
      complain(`policy: ${JSON.stringify(issue.details)}`);
    }
  });
  return watched;
}

export async function close(watched, check) {
  if (watched.wrong.length > 0) throw new Error(watched.wrong.join("\n  "));
  await watched.context.close();
  return check;
}

/** Audits the page as it is now, in both themes and two sizes. */
export async function auditPage(watched, name) {
  const { page } = watched;
  for (const theme of themes) {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
    for (const size of sizes) {
      await page.setViewport(size);
      if (process.env.SCREENSHOTS) {
        const path = `${process.env.SCREENSHOTS}/${name}-${theme}-${size.width}.png`;
        await page.screenshot({ path, fullPage: true });
      }
      const wrong = await audited(page);
      watched.wrong.push(...wrong.map((text) => `${name}, ${theme}, ${size.width}: ${text}`));
    }
  }
  await page.setViewport(sizes[0]);
}

/** Works without scripts of the page, too. Evaluates again on a page that reloads itself. */
async function audited(page) {
  const end = Date.now() + 90_000;
  for (;;) {
    try {
      const wrong = await page.evaluate(audit);
      if (wrong !== null) return wrong;
    } catch (error) {
      if (!/context was destroyed|Cannot find context/.test(error.message)) throw error;
    }
    if (Date.now() > end) throw new Error("the page did not load within 90 s");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

export function equal(found, expected, what) {
  const [one, other] = [JSON.stringify(found), JSON.stringify(expected)];
  if (one !== other) throw new Error(`${what}: found ${one}, expected ${other}`);
}

export function holds(fact, what) {
  if (!fact) throw new Error(what);
}
