// Uses the annotation service with a real browser: node pages.mjs BASE_URL CONTROL_URL
//
// The control URL is another origin: it takes the index down and up again, and has a page with our script
// in it. SCREENSHOTS=folder saves screenshots; a further argument runs only the checks whose name
// contains it.
import { launch } from "../../../pastes/tests/browser/browser.mjs";
import { close, open } from "../../../pastes/tests/browser/watch.mjs";
import * as elsewhere from "./elsewhere.mjs";
import * as groups from "./groups.mjs";
import * as long from "./long.mjs";
import * as reading from "./reading.mjs";
import * as writing from "./writing.mjs";

const [base, control, only = ""] = process.argv.slice(2);
const limit = 300_000;
// Time limit of one step of a check.
const stepTimeout = 120_000;

function within(promise, name) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${name} took over ${limit / 1000} s`)), limit);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function order(what) {
  const signal = AbortSignal.timeout(240_000);
  const response = await fetch(`${control}/${what}`, { method: "POST", signal });
  if (!response.ok) throw new Error(`control returned ${response.status}`);
}

// A slow machine is no outage: pages wait for the service as long as a check does.
async function openSlow(more) {
  const watched = await open(browser, base, more);
  watched.page.setDefaultTimeout(stepTimeout);
  await watched.page.evaluateOnNewDocument(() => {
    AbortSignal.timeout = () => new AbortController().signal;
  });
  return watched;
}

const checks = Object.entries({ ...writing, ...reading, ...elsewhere, ...groups, ...long }).filter(([name]) =>
  name.includes(only),
);
let failed = 0;
const browser = await launch();
try {
  for (const [name, check] of checks) {
    try {
      const options = { open: openSlow, close, base, control, order, browser, stepTimeout };
      await within(check(options), name);
      console.log(`ok      ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name}\n  ${error.stack ?? error}`);
    }
  }
} finally {
  await browser.close();
}
console.log(`${checks.length - failed} of ${checks.length} checks passed`);
process.exit(failed === 0 && checks.length > 0 ? 0 : 1);
