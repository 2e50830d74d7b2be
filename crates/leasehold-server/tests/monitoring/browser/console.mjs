// Uses the console as an operator does, in a real browser: node console.mjs BASE_URL CONTROL_URL
// The browser and the checks of every page are those of the paste pages.
// SCREENSHOTS=folder keeps screenshots.
import { launch } from "../../../../pastes/tests/browser/browser.mjs";
import { close, equal, holds, auditPage, open } from "../../../../pastes/tests/browser/watch.mjs";

const [base, control] = process.argv.slice(2);

async function prepare(what) {
  const answer = await fetch(`${control}/${what}`, { method: "POST", signal: AbortSignal.timeout(240_000) });
  if (!answer.ok) throw new Error(`control returned ${answer.status} for ${what}`);
}

// The console waits for the database for some seconds only; a busy machine may need more.
async function visit(page, path) {
  for (let tries = 0; tries < 10; tries += 1) {
    const answer = await page.goto(`${base}${path}`);
    if (answer.status() !== 503) return;
  }
  throw new Error(`the database did not respond to the console at ${path}`);
}

// Opens a disclosure. A click is lost when the page is refreshed between press and release.
async function unfold(page, selector) {
  for (let tries = 0; tries < 10; tries += 1) {
    await page.click(`${selector} summary`).catch(() => undefined);
    if (await page.$(`${selector} details[open]`)) return;
  }
  throw new Error(`${selector} does not open`);
}

const text = (page, selector) => page.$eval(selector, (element) => element.textContent.trim());

const checks = {
  async empty_console_advises_to_start_a_worker(browser) {
    const watched = await open(browser, base);
    await visit(watched.page, "/console");
    equal(await text(watched.page, "h1"), "No worker takes samples.", "the heading");
    holds((await text(watched.page, ".health p")).includes("Start a worker"), "the advice");
    await auditPage(watched, "empty");
    await close(watched);
  },

  async console_shows_charts_queues_and_mirrors(browser) {
    await prepare("traffic");
    const watched = await open(browser, base);
    const { page } = watched;
    await visit(page, "/console");
    equal(await text(page, "h1"), "No active alarms", "the heading");
    const lines = await page.$$eval(".chart .line", (paths) => paths.map((path) => path.getAttribute("d").split("L").length));
    holds(lines.length >= 3 && lines.every((points) => points > 20), `lines through the minutes: ${lines}`);
    const queues = await page.$$eval("[data-queue]", (rows) => rows.map((row) => row.dataset.queue));
    equal(queues, ["annotations", "mail"], "the queues");
    holds((await text(page, "#mirrors")).includes("Equal"), "the mirror shows since when it is equal");
    await auditPage(watched, "well");
    for (const range of ["3h", "24h", "30d"]) {
      await visit(page, `/console?range=${range}`);
      equal((await page.$$(".chart")).length, 3, `charts of ${range}`);
    }
    await auditPage(watched, "day");
    await close(watched);
  },

  async alarm_appears_and_is_acknowledged(browser) {
    const watched = await open(browser, base);
    const { page } = watched;
    await visit(page, "/console");
    equal(await page.$(".alarm"), null, "alarms before");
    await prepare("trouble");
    await page.waitForSelector(".alarm[data-rule=expired_jobs]");
    equal(await text(page, "h1"), "1 active alarm", "the heading");
    await auditPage(watched, "alarm");
    await unfold(page, ".alarm");
    await page.type(".alarm input[name=why]", "looking at it <b>now</b>");
    // The page waits while the operator types: two refreshes later the text is still there.
    await page.waitForFunction(() => document.querySelector("#pulse").dataset.state === "waiting");
    equal(await page.$eval(".alarm input[name=why]", (field) => field.value), "looking at it <b>now</b>", "what was typed");
    await auditPage(watched, "form");
    await Promise.all([page.waitForNavigation(), page.click("button[value=ack]")]);
    equal(await text(page, ".alarm .badge"), "acknowledged", "the state");
    holds((await text(page, ".alarm")).includes("looking at it <b>now</b>"), "the reason, as it was written");
    await close(watched);
  },

  async refreshing_pauses_and_the_theme_changes(browser) {
    const watched = await open(browser, base);
    const { page } = watched;
    await visit(page, "/console");
    await page.click("#pulse");
    equal(await text(page, "#pulse"), "paused", "the pulse");
    await page.click("#theme");
    equal(await page.$eval("html", (root) => root.dataset.theme), "light", "the theme");
    await page.reload();
    equal(await page.$eval("html", (root) => root.dataset.theme), "light", "the theme after a reload");
    await close(watched);
  },

  async console_works_without_scripts(browser) {
    const watched = await open(browser, base, { scripts: false });
    await visit(watched.page, "/console");
    holds((await watched.page.$$(".chart")).length >= 2, "charts");
    equal(await watched.page.$eval("#pulse", (button) => button.hidden), true, "no pulse");
    await close(watched);
  },
};

const browser = await launch();
let failed = 0;
try {
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check(browser);
      console.log(`ok      ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name}\n  ${error.stack}`);
    }
  }
} finally {
  await browser.close();
}
process.exitCode = failed > 0 ? 1 : 0;
