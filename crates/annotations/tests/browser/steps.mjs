// Steps that several checks share.

let users = 0;

/** Signs up with the form of the page, and opens the text. */
export async function signUp(watched, prefix = "reader") {
  const { page, base } = watched;
  users += 1;
  await page.setViewport({ width: 1280, height: 820 });
  const name = `${prefix}${process.pid}.${users}`;
  await page.goto(`${base}/account`);
  await page.locator("#name").fill(name);
  await Promise.all([page.waitForNavigation(), page.locator("form[action='/account/signup'] button").click()]);
  await page.goto(`${base}/`);
  return name;
}

/** Selects words of the text. */
export async function select(page, words) {
  const found = await page.evaluate((wanted) => {
    const body = document.querySelector("#body");
    const start = body.textContent.indexOf(wanted);
    if (start < 0) return false;
    // Marks may be between the words.
    const place = (at) => {
      const walker = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
      while (walker.nextNode()) {
        if (at <= walker.currentNode.data.length) return [walker.currentNode, at];
        at -= walker.currentNode.data.length;
      }
    };
    const range = document.createRange();
    range.setStart(...place(start));
    range.setEnd(...place(start + wanted.length));
    range.startContainer.parentElement.scrollIntoView({ block: "center" });
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    return true;
  }, words);
  if (!found) throw new Error(`the text has no ${words}`);
  await page.waitForSelector("#bar:not([hidden])");
}

/** Annotates words of the text; returns the key of the note. */
export async function annotate(page, words, text, tags = "") {
  await select(page, words);
  await page.locator("#annotate").click();
  await page.waitForSelector("#compose:not([hidden])");
  await page.waitForFunction(() => document.activeElement.id === "compose-text");
  await page.type("#compose-text", text);
  if (tags) await page.type("#compose-tags", tags);
  await page.locator("#compose button[type=submit]").click();
  return card(page, text);
}

/** Waits for the note with this text; returns its key. */
export async function card(page, text) {
  const found = await page.waitForFunction(
    (wanted) =>
      [...document.querySelectorAll("#margin .card")].find(
        (it) => it.querySelector(".said")?.textContent === wanted,
      )?.dataset.note,
    {},
    text,
  );
  return found.jsonValue();
}

/** Waits until no note has this text. */
export const gone = (page, text) =>
  page.waitForFunction(
    (wanted) => ![...document.querySelectorAll("#margin .said")].some((it) => it.textContent === wanted),
    {},
    text,
  );

export const counts = (page) =>
  page.$$eval("#margin .tabs .count", (all) => all.map((it) => Number(it.textContent)));

export const texts = (page) => page.$$eval("#margin .said", (all) => all.map((it) => it.textContent));

/** Deletes a note. Presses twice at once, because the page waits for the second press only a few seconds. */
export const erase = (page, key) =>
  page.$eval(`#note-${key} [data-do=delete]`, (it) => {
    it.focus();
    if (it.textContent === "Delete") it.click();
    it.click();
  });

/** Presses a button of a note. */
export async function press(page, key, does) {
  await page.locator(`#note-${key} [data-do=${does}]`).click();
}
