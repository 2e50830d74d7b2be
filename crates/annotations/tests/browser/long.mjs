// More than fits onto a page: long texts, and many notes.
import { auditPage, equal, holds } from "../../../pastes/tests/browser/watch.mjs";
import { pictures } from "./pictures.mjs";
import { press, signUp } from "./steps.mjs";

/** Saves a note as the page's own script does; returns its key. */
const save = (page, exact, text) =>
  page.evaluate(
    async (quote, value) => {
      const target = { source: document.querySelector("main").dataset.url };
      target.selector = [{ type: "TextQuoteSelector", exact: quote }];
      const response = await fetch("/api/annotations", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ target, body: [{ type: "TextualBody", value }] }),
      });
      return (await response.json()).key;
    },
    exact,
    text,
  );

const drop = (page, keys) =>
  page.evaluate(async (all) => {
    for (const key of all) await fetch(`/api/annotations/${key}`, { method: "DELETE" });
  }, keys);

const said = (page, key) => page.$eval(`#note-${key} .said`, (it) => it.textContent);

export async function long_text_is_shown_and_edited_completely({ open, close }) {
  const watched = await open();
  const { page, base } = watched;
  await signUp(watched);
  const text = `${"Words and words. ".repeat(300)}And the last one.`;
  const key = await save(page, "Don Quixote added it up", text);
  await page.reload();
  equal(await said(page, key), text.slice(0, 2000), "the beginning");
  await auditPage(watched, "long-text");
  await pictures(page, "long-text", `#note-${key} .more`);
  // Edit before the page has loaded the rest: nothing of it is lost.
  await press(page, key, "edit");
  await page.waitForSelector("#within-text");
  equal(await page.$eval("#within-text", (it) => it.value), text, "all of it to begin with");
  await page.type("#within-text", " Or not.");
  await page.locator("form.within button[type=submit]").click();
  await page.waitForFunction(() => !document.querySelector("form.within"));
  // The page reads its notes again after a save, and shows the beginning of a long one: press until then.
  await page.waitForFunction(
    (it, whole) => {
      document.querySelector(`#note-${it} [data-more]`)?.click();
      return document.querySelector(`#note-${it} .said`)?.textContent === whole;
    },
    { polling: 200 },
    key,
    `${text} Or not.`,
  );
  equal(await page.evaluate(() => document.activeElement.dataset.note), key, "the focus");
  await page.goto(`${base}/note/${key}`);
  equal(await said(page, key), `${text} Or not.`, "on its own page");
  await auditPage(watched, "note");
  await drop(page, [key]);
  return close(watched);
}

export async function older_notes_are_on_further_pages({ open, close }) {
  const watched = await open();
  const { page } = watched;
  const name = await signUp(watched);
  const keys = [];
  // Each takes more of the page than its text: an attribute repeats the quote.
  for (let number = 0; number < 14; number += 1) {
    keys.push(await save(page, `${number} ${'"'.repeat(16_000)}`, `Large ${number}`));
  }
  const mine = () =>
    page.$$eval(
      "#margin .card",
      (all, who) =>
        all.filter((it) => it.querySelector(".who a").dataset.value === who).map((it) => it.dataset.note),
      name,
    );
  await page.goto(`${watched.base}/?user=${name}`);
  const first = await mine();
  holds(first.length > 0 && first.length < keys.length, `some of them: ${first.length}`);
  await auditPage(watched, "newest-notes");
  const seen = new Set(first);
  while (await page.$("#margin a[data-cursor]:not([data-cursor=''])")) {
    const shown = await mine();
    await page.locator("#margin a[data-cursor]:not([data-cursor=''])").click();
    await page.waitForFunction((key) => !document.querySelector(`#note-${key}`), {}, shown[0]);
    for (const key of await mine()) seen.add(key);
  }
  equal(seen.size, keys.length, "all of them, on some page");
  await auditPage(watched, "older-notes");
  await pictures(page, "older-notes", "#margin .pager");
  await page.locator("#margin a[data-cursor='']").click();
  await page.waitForSelector(`#note-${first[0]}`);
  equal(await mine(), first, "the newest again");
  await drop(page, keys);
  return close(watched);
}
