// Uses the paste service as a user does, with a real browser: node pages.mjs BASE_URL CONTROL_URL
//
// The service uploads nothing by itself: `work()` makes it, so that the checks see the page before and
// after the upload. SCREENSHOTS=folder keeps pictures of the pages; a further argument runs only the
// checks whose name contains it.
import { launch } from "./browser.mjs";
import * as reading from "./reading.mjs";
import * as writing from "./writing.mjs";
import { close, open } from "./watch.mjs";

const [base, control, only = ""] = process.argv.slice(2);
const limit = 300_000;

async function work() {
  const signal = AbortSignal.timeout(120_000);
  const response = await fetch(`${control}/work`, { method: "POST", signal });
  if (!response.ok) throw new Error(`control returned ${response.status}`);
}

function within(promise, name) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${name} took over ${limit / 1000} s`)), limit);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

const checks = Object.entries({ ...writing, ...reading }).filter(([name]) => name.includes(only));
const browser = await launch();
let failed = 0;
try {
  for (const [name, check] of checks) {
    const started = Date.now();
    try {
      const opened = (options) => open(browser, base, options);
      await within(check({ base, browser, work, open: opened, close }), name);
      console.log(`ok      ${name} (${Date.now() - started} ms)`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name}\n  ${error.stack}`);
    }
  }
} finally {
  await browser.close();
}
console.log(`${checks.length - failed} of ${checks.length} checks passed`);
process.exitCode = failed > 0 || checks.length === 0 ? 1 : 0;
