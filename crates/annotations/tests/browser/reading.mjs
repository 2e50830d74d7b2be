// Reading: search, filters, keys, a phone, no scripts, an index that is down.
import { auditPage, equal, holds } from "../../../pastes/tests/browser/watch.mjs";
import { annotate, card, counts, erase, gone, signUp, texts } from "./steps.mjs";

export async function notes_are_searched_and_filtered({ open, close, order }) {
  const watched = await open();
  const { page } = watched;
  // Index the notes of other checks first; otherwise they would appear during this one.
  await order("work");
  const name = await signUp(watched);
  await annotate(page, "Day was dawning", "An early start", "morning");
  await annotate(page, "Rocinante should stumble", "Poor horse", "animals");
  const all = (await texts(page)).length;
  await page.type("#q", "horse poor");
  await page.keyboard.press("Enter");
  await gone(page, "An early start");
  equal(await texts(page), ["Poor horse"], "what has both words");
  equal(await page.$$eval("mark", (marks) => marks.length), 1, "only its passage is marked");
  await auditPage(watched, "searched");
  await page.locator("a[data-drop=q]").click();
  await card(page, "An early start");
  equal((await texts(page)).length, all, "everything again");
  await page.locator("a[data-add=tag][data-value=morning]").click();
  await gone(page, "Poor horse");
  await page.locator("a[data-drop=tag]").click();
  await card(page, "Poor horse");
  await page.locator(`a[data-add=user][data-value="${name}"]`).click();
  await page.waitForFunction(() => document.querySelectorAll("#margin .card").length === 2);
  equal((await texts(page)).sort(), ["An early start", "Poor horse"], "the notes of one user");
  await page.goBack();
  await page.waitForFunction((n) => document.querySelectorAll("#margin .card").length === n, {}, all);
  // Going back restores the fields, too.
  await page.type("#q", "horse");
  await page.keyboard.press("Enter");
  await gone(page, "An early start");
  await page.select("#group", "__world__");
  await page.waitForFunction(() => new URLSearchParams(location.search).get("group") === "__world__");
  const fields = () => page.evaluate(() => [document.querySelector("#q").value, document.querySelector("#group").value]);
  await page.goBack();
  equal(await fields(), ["horse", ""], "the group is the former one");
  await page.goBack();
  await card(page, "An early start");
  equal(await fields(), ["", ""], "and so is the search");
  await page.type("#q", "nothing has these words");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelector("#margin .none")?.textContent === "No notes match.");
  return close(watched);
}

export async function focus_stays_on_the_control_in_use({ open, close }) {
  const watched = await open();
  const { page } = watched;
  await signUp(watched);
  const first = await annotate(page, "about two miles", "Focus one", "focused");
  const second = await annotate(page, "perceived a large party", "Focus two", "focused");
  const focus = () =>
    page.evaluate(() => {
      const at = document.activeElement;
      return at.dataset.tab ?? at.dataset.drop ?? at.dataset.note ?? at.localName;
    });
  const press = async (selector) => {
    await page.focus(selector);
    await page.keyboard.press("Enter");
  };
  await press(`#note-${first} [data-add=tag]`);
  await page.waitForSelector("[data-drop=tag]");
  equal((await texts(page)).sort(), ["Focus one", "Focus two"], "those of the tag");
  equal(await focus(), "tag", "on the chosen filter");
  await erase(page, first);
  await gone(page, "Focus one");
  equal(await focus(), second, "on the note in the same position");
  await press("[data-drop=tag]");
  await page.waitForFunction(() => !document.querySelector("[data-drop]"));
  equal(await focus(), "annotations", "on the tab, when the filter is gone");
  await press("[data-tab=notes]");
  await page.waitForSelector("[data-tab=notes][aria-current]");
  equal(await focus(), "notes", "on the chosen tab");
  return close(watched);
}

export async function keyboard_shortcuts_work({ open, close }) {
  const watched = await open();
  const { page } = watched;
  await signUp(watched);
  await annotate(page, "feeble cries", "Who is it?");
  await page.click("#title");
  await page.keyboard.press("j");
  await page.waitForSelector("#margin .card.chosen");
  await page.keyboard.press("/");
  equal(await page.evaluate(() => document.activeElement.id), "q", "the search has the focus");
  await page.keyboard.press("j");
  equal(await page.$eval("#q", (it) => it.value), "j", "no shortcut in a text field");
  await page.$eval("#q", (it) => { it.value = ""; it.blur(); });
  await page.keyboard.press("n");
  await page.waitForSelector("#compose:not([hidden])");
  equal(await page.evaluate(() => document.activeElement.id), "compose-text", "writing begins");
  await page.keyboard.press("Escape");
  await page.waitForSelector("#compose[hidden]");
  await page.keyboard.press("?");
  await page.waitForSelector("#help[open]");
  await page.keyboard.press("Escape");
  await page.evaluate(() => document.querySelector("#theme").click());
  equal(await page.evaluate(() => document.documentElement.dataset.theme), "light", "a theme");
  await page.reload();
  equal(await page.evaluate(() => document.documentElement.dataset.theme), "light", "kept");
  return close(watched);
}

export async function margin_is_a_sheet_on_a_phone({ open, close }) {
  const watched = await open();
  const { page } = watched;
  await signUp(watched);
  await page.setViewport({ width: 360, height: 740, isMobile: true, hasTouch: true });
  await page.reload();
  holds(!(await page.$eval("#notes", (it) => it.checkVisibility({ visibilityProperty: true }))), "closed at first");
  const key = await annotate(page, "a thicket on his right", "Shade, at last");
  holds(await page.$eval("#notes", (it) => it.checkVisibility({ visibilityProperty: true })), "it opened for writing");
  if (process.env.SCREENSHOTS) await page.screenshot({ path: `${process.env.SCREENSHOTS}/sheet-360.png` });
  await page.locator("#close").click();
  await page.waitForFunction(() => !document.querySelector("#notes").checkVisibility({ visibilityProperty: true }));
  if (process.env.SCREENSHOTS) await page.screenshot({ path: `${process.env.SCREENSHOTS}/closed-360.png` });
  await page.locator(`mark[data-note="${key}"]`).click();
  await page.waitForFunction(() => document.querySelector("#notes").checkVisibility({ visibilityProperty: true }));
  await page.waitForSelector(`#note-${key}.chosen`);
  return close(watched);
}

export async function page_is_readable_and_searchable_without_scripts({ open, close, order }) {
  const writer = await open();
  await signUp(writer);
  await annotate(writer.page, "our knight", "Ours!").catch(() => annotate(writer.page, "quitted the inn", "Ours!"));
  await order("work");
  await close(writer);
  const watched = await open({ scripts: false });
  const { page, base } = watched;
  await page.goto(`${base}/`);
  holds((await texts(page)).includes("Ours!"), "the notes are there");
  holds((await counts(page))[0] > 0, "and counted");
  await page.type("#q", "ours");
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  const found = await texts(page);
  holds(found.length > 0 && found.every((it) => /ours/i.test(it)), `and found: ${found}`);
  await auditPage(watched, "no-scripts");
  await page.goto(`${base}/account`);
  await auditPage(watched, "sign-up");
  return close(watched);
}

export async function page_works_while_the_index_is_down({ open, close, order }) {
  const watched = await open();
  const { page } = watched;
  await signUp(watched);
  await order("down");
  try {
    await annotate(page, "he charged with levelled lance", "During the outage");
    // The page shows the notice once the breaker is open, after several failures.
    await page.reload();
    await page.waitForSelector("#margin .notice.index");
    equal(
      await page.$eval("#margin .notice.index", (it) => it.textContent),
      "Search is catching up. Your notes are safe.",
      "the notice",
    );
    await card(page, "During the outage");
    await auditPage(watched, "index-down");
    await page.type("#q", "outage");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelectorAll("#margin .card").length === 1);
  } finally {
    await order("up");
  }
  return close(watched);
}
