// Writing notes: about a passage, about the page, replies, edits, deletions.
import { auditPage, equal, holds } from "../../../pastes/tests/browser/watch.mjs";
import { pictures } from "./pictures.mjs";
import { annotate, card, counts, erase, gone, press, select, signUp, texts } from "./steps.mjs";

export async function selected_passage_is_annotated_and_marked({ open, close }) {
  const watched = await open();
  const { page } = watched;
  const name = await signUp(watched, "sophia");
  const key = await annotate(page, "Don Quixote added it up", "So he can do sums?", "math, spanish coins");
  const marked = await page.$eval(`mark[data-note="${key}"]`, (it) => it.textContent);
  equal(marked, "Don Quixote added it up", "what is marked");
  equal(await page.$eval(`#note-${key} .passage`, (it) => it.textContent), marked, "what is quoted");
  equal(await page.$eval(`#note-${key} .who a`, (it) => it.textContent), name, "who said it");
  equal(await page.$$eval(`#note-${key} .tags a`, (all) => all.map((it) => it.textContent)), ["math", "spanish coins"], "tags");
  holds((await page.$eval(`#note-${key} time`, (it) => it.textContent)) === "just now", "its age");

  // A click on the note shows the passage, and the other way round.
  await page.locator(`mark[data-note="${key}"]`).click();
  await page.waitForSelector(`#note-${key}.chosen`);
  await page.locator(`#note-${key} .passage`).click();
  await page.waitForSelector(`mark[data-note="${key}"].chosen`);

  // A second note that overlaps, and one over several marks.
  const other = await annotate(page, "added it up, found that it came to sixty-three reals", "Nine times seven");
  equal(await page.$$eval(`mark[data-note="${other}"]`, (all) => all.map((it) => it.textContent).join("")), "added it up, found that it came to sixty-three reals", "an overlapping mark");
  await page.reload();
  equal(await page.$$eval(`mark[data-note="${key}"]`, (all) => all.map((it) => it.textContent).join("")), marked, "after a reload");
  await auditPage(watched, "annotated");
  await pictures(page, "reader");
  return close(watched);
}

export async function author_edits_and_deletes_a_note({ open, close }) {
  const watched = await open();
  const { page } = watched;
  await signUp(watched);
  const key = await annotate(page, "closer than a lizard", "They hide");
  const [before] = await counts(page);
  await press(page, key, "edit");
  equal(await page.$eval("#within-text", (it) => it.value), "They hide", "the old text to begin with");
  await page.type("#within-text", " well");
  await page.type("#within-tags", "reptiles");
  await page.keyboard.down("Control");
  await page.keyboard.press("Enter");
  await page.keyboard.up("Control");
  await card(page, "They hide well");
  equal(await page.$$eval(`#note-${key} .tags a`, (all) => all.map((it) => it.textContent)), ["reptiles"], "tags");
  const asked = await page.$eval(`#note-${key} [data-do=delete]`, (it) => {
    it.click();
    return it.textContent;
  });
  equal(asked, "Really delete?", "asked first");
  holds((await texts(page)).includes("They hide well"), "and not deleted");
  await erase(page, key);
  await gone(page, "They hide well");
  equal(await page.$(`mark[data-note="${key}"]`), null, "no mark is left");
  equal((await counts(page))[0], before - 1, "the count");
  return close(watched);
}

export async function edit_does_not_overwrite_a_concurrent_edit({ open, close }) {
  const watched = await open();
  const { page } = watched;
  await signUp(watched);
  const key = await annotate(page, "flogging him with a belt", "As I saw it");
  await press(page, key, "edit");
  await page.type("#within-text", " first");
  // In another window.
  const status = await page.evaluate(async (k) => {
    const body = JSON.stringify({ body: [{ type: "TextualBody", value: "As I see it now" }] });
    const headers = { "Content-Type": "application/json" };
    return (await fetch(`/api/annotations/${k}`, { method: "PATCH", headers, body })).status;
  }, key);
  equal(status, 200, "the other edit");
  await page.locator("form.within button[type=submit]").click();
  await page.waitForSelector("form.within .alert:not([hidden])");
  holds((await page.$eval("form.within .alert", (it) => it.textContent)).includes("changed meanwhile"), "the reason is shown");
  equal(await page.$eval("#within-text", (it) => it.value), "As I saw it first", "nothing that was written is lost");
  await page.reload();
  await card(page, "As I see it now");
  watched.wrong = watched.wrong.filter((it) => !it.includes("412"));
  return close(watched);
}

export async function users_reply_to_each_other({ open, close, order }) {
  const [one, other] = [await open(), await open()];
  await signUp(one);
  const key = await annotate(one.page, "Lies before me, base clown!", "Strong words");
  await order("work");
  await signUp(other);
  await card(other.page, "Strong words");
  equal(await other.page.$(`#note-${key} [data-do=edit]`), null, "others cannot edit");
  await press(other.page, key, "reply");
  await other.page.type("#within-text", "He means it");
  await other.page.locator("form.within button[type=submit]").click();
  const reply = await card(other.page, "He means it");
  holds(await other.page.$(`.replies #note-${reply}`), "it stands below what it answers");
  await order("work");
  await one.page.reload();
  await card(one.page, "He means it");
  await auditPage(one, "conversation");
  // The author deletes the first note; the replies of others stay.
  await erase(one.page, key);
  await gone(one.page, "Strong words");
  await one.page.waitForSelector(`.left-behind #note-${reply}`);
  await auditPage(one, "left-behind");
  await pictures(one.page, "left-behind", ".left-behind");
  await close(other);
  return close(one);
}

export async function page_note_is_on_the_other_tab({ open, close }) {
  const watched = await open();
  const { page } = watched;
  await signUp(watched);
  const [annotations, notes] = await counts(page);
  await page.locator("#page-note").click();
  await page.type("#compose-text", "I like this chapter");
  await page.locator("#compose button[type=submit]").click();
  await card(page, "I like this chapter");
  equal(await counts(page), [annotations, notes + 1], "counts");
  equal(new URL(page.url()).searchParams.get("tab"), "notes", "the tab in the address");
  await auditPage(watched, "page-notes");
  await page.locator("a[data-tab=annotations]").click();
  await gone(page, "I like this chapter");
  await page.goBack();
  await card(page, "I like this chapter");
  return close(watched);
}

export async function note_in_a_group_is_visible_to_members_only({ open, close, order }) {
  const [one, other] = [await open(), await open()];
  await signUp(one);
  const { page, base } = one;
  await page.goto(`${base}/account`);
  await page.locator("#group-name").fill("Windmill readers");
  await Promise.all([page.waitForNavigation(), page.locator("form[action='/account/groups'] button").click()]);
  await auditPage(one, "account");
  await page.goto(`${base}/`);
  await select(page, "by the sun that shines".replace("by", "By"));
  await page.locator("#annotate").click();
  await page.type("#compose-text", "Only for us");
  const group = await page.$$eval("#compose-group option", (all) => all.find((it) => it.textContent === "Windmill readers").value);
  await page.select("#compose-group", group);
  await page.locator("#compose button[type=submit]").click();
  const key = await card(page, "Only for us");
  equal(await page.$eval(`#note-${key} .badge`, (it) => it.textContent), "Windmill readers", "its group");
  await order("work");
  await signUp(other);
  holds(!(await texts(other.page)).includes("Only for us"), "others do not see it");
  equal(await other.page.$(`mark[data-note="${key}"]`), null, "nor where it is");
  const read = await other.page.evaluate(async (k) => (await fetch(`/api/annotations/${k}`)).status, key);
  equal(read, 404, "nor by its address");
  // The filter by group.
  await page.select("#group", group);
  await page.waitForFunction(() => document.querySelectorAll("#margin .card").length === 1);
  equal(await texts(page), ["Only for us"], "only the group's");
  await close(other);
  return close(one);
}

export async function h3_user_text_is_never_run({ open, close }) {
  const watched = await open();
  const { page } = watched;
  await signUp(watched);
  const evil = `<img src=x onerror="alert(1)"><script>alert(2)</script>`;
  await annotate(page, "turned to his boy Andres", evil, "<b>bold");
  await page.reload();
  await card(page, evil);
  equal(await page.$("#margin img, #margin script, #margin b"), null, "nothing of it is markup");
  return close(watched);
}

export async function form_keeps_a_text_that_was_not_saved({ open, close }) {
  const watched = await open();
  const { page } = watched;
  await signUp(watched);
  await page.locator("#page-note").click();
  await page.type("#compose-text", "   ");
  await page.locator("#compose button[type=submit]").click();
  await page.waitForSelector("#compose .alert:not([hidden])");
  holds((await page.$eval("#compose .alert", (it) => it.textContent)).includes("must have a text"), "the reason is shown");
  await page.setOfflineMode(true);
  await page.type("#compose-text", "written on a train");
  await page.locator("#compose button[type=submit]").click();
  await page.waitForFunction(() => document.querySelector("#compose .alert").textContent.includes("cannot be reached"));
  holds((await page.$eval("#compose-text", (it) => it.value)).includes("written on a train"), "nothing is lost");
  await page.setOfflineMode(false);
  await page.locator("#compose button[type=submit]").click();
  await card(page, "written on a train");
  watched.wrong = watched.wrong.filter((it) => !it.includes("ERR_INTERNET_DISCONNECTED"));
  return close(watched);
}

export async function changed_text_gets_another_idempotency_key({ open, close }) {
  const watched = await open();
  const { page } = watched;
  await signUp(watched);
  // No save gets a response.
  await page.evaluate(() => {
    window.sent = [];
    window.fetch = async (_, { headers }) => {
      window.sent.push(headers["Idempotency-Key"]);
      throw new TypeError("no answer");
    };
  });
  const send = async (times) => {
    await page.locator("#compose button[type=submit]").click();
    await page.waitForFunction(
      (n) => window.sent.length === n && !document.querySelector("#compose .alert").hidden,
      {},
      times,
    );
  };
  await page.locator("#page-note").click();
  await page.type("#compose-text", "Sent");
  await send(1);
  await send(2);
  await page.type("#compose-text", ", and changed");
  await send(3);
  const [first, again, changed] = await page.evaluate(() => window.sent);
  equal(again, first, "the same words, the same key");
  holds(changed && changed !== first, "other words, another key");
  return close(watched);
}
