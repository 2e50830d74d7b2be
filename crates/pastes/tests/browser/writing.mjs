// Creating pastes.
import { equal, holds, auditPage } from "./watch.mjs";
import { RUST, allowClipboard, appears, clipboard, paste, announced, save, shownText } from "./steps.mjs";

export async function create_page_passes_the_audit({ base, open, close }) {
  const watched = await open();
  await watched.page.goto(`${base}/`);
  await auditPage(watched, "create");
  await close(watched);
}

export async function ctrl_enter_saves_and_the_waiting_page_shows_the_paste({ base, open, close, work }) {
  const watched = await open();
  const { page } = watched;
  await page.goto(`${base}/`);
  await page.locator("#content").fill(RUST);
  await page.select("#lang", "rust");
  await page.focus("#content");
  await page.keyboard.down("Control");
  const [response] = await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  await page.keyboard.up("Control");
  equal(response.status(), 503, "status while it is being stored");
  await page.waitForSelector("[data-wait]");
  await auditPage(watched, "waiting");
  await work();
  await appears(page, "#code");
  equal(await shownText(page), RUST, "text");
  const link = await page.$eval("#copy-link", (field) => field.value);
  equal(new URL(link).pathname, new URL(page.url()).pathname, "link");
  holds((await page.$eval("#copy-token", (field) => field.value)).length > 20, "a delete token");
  await auditPage(watched, "created");
  await page.reload();
  equal(await page.$(".created"), null, "the token is shown once");
  await close(watched);
}

export async function waiting_page_does_not_reload_while_the_token_is_copied({ open, close, work }) {
  const watched = await open();
  const { page } = watched;
  await save(watched, "busy\n");
  await page.locator(".created summary").click();
  const token = await page.$eval("#copy-token", (field) => field.value);
  await work();
  await page.waitForFunction(() => document.querySelector("h1").textContent === "Ready");
  equal(await page.$eval("#copy-token", (field) => field.value), token, "still there");
  await auditPage(watched, "waiting-ready");
  await Promise.all([page.waitForNavigation(), page.locator(".waiting .hint a").click()]);
  equal(await shownText(page), "busy\n", "text");
  equal(await page.$eval("#copy-token", (field) => field.value), token, "the token came along");
  await close(watched);
}

export async function every_page_works_without_scripts({ base, open, close, work }) {
  const watched = await open({ scripts: false });
  const { page } = watched;
  // Waiting inside the page needs scripts, so these steps press and auditPage from outside.
  const press = async (selector) => {
    const pressed = (await page.$(selector)).click();
    await Promise.all([page.waitForNavigation(), pressed]);
  };
  await page.goto(`${base}/`);
  await page.focus("#content");
  await page.keyboard.sendCharacter(RUST);
  await page.select("#lang", "rust");
  await press(".save button");
  const address = page.url();
  await auditPage(watched, "waiting-plain");
  await work();
  // The page reloads by itself, perhaps it has already.
  await appears(page, "#code");
  equal(await shownText(page), RUST, "text");
  await auditPage(watched, "paste-plain");
  for (const button of await page.$$("button[hidden]")) {
    equal(await button.boundingBox(), null, "a button that needs scripts is visible");
  }
  await page.goto(`${address}#L2`);
  const ground = (line) => page.$eval(line, (it) => getComputedStyle(it).backgroundColor);
  holds((await ground("#L2")) !== (await ground("#L1")), "the line of the link is marked");
  await press("a[data-key=r]");
  equal(await page.evaluate(() => document.body.textContent), RUST, "raw");

  const burning = await paste(base, "once\n", "?burn=1");
  const ending = await paste(base, "ending\n");
  await work();
  await page.goto(`${base}/${burning.code}`);
  await press(".burn .primary");
  equal(await shownText(page), "once\n", "read once");
  await page.goto(`${base}/${ending.code}`);
  await (await page.$(".more details:nth-of-type(2) summary")).click();
  await page.focus("#delete-token");
  await page.keyboard.sendCharacter(ending.token);
  await press("form[action$=delete] button");
  equal(await page.$eval("h1", (it) => it.textContent), "Deleted", "deleted");
  await close(watched);
}

export async function form_with_an_error_keeps_what_was_typed({ base, open, close }) {
  const { code } = await paste(base, "first", "?alias=taken-name");
  const watched = await open();
  const { page } = watched;
  await save(watched, "\n\n second", (it) => it.locator("#alias").fill(code));
  equal(await page.$eval("#content", (field) => field.value), "\n\n second", "text");
  equal(await page.$eval("#alias", (field) => field.value), code, "alias");
  equal(await page.$eval("#alias", (field) => field.getAttribute("aria-invalid")), "true", "field");
  holds(await page.$eval("#form-error", (it) => it.textContent.length > 20), "what is wrong");
  equal(await page.evaluate(() => document.activeElement.id), "alias", "focus");
  await auditPage(watched, "create-error");
  await close(watched);
}

export async function form_sends_neither_empty_nor_too_large_texts({ base, open, close }) {
  const watched = await open();
  const { page } = watched;
  await page.goto(`${base}/`);
  await page.locator(".save button").click();
  await announced(page, "Type or paste a text first.");
  const limit = await page.$eval("#content", (field) => Number(field.dataset.limit));
  await page.$eval("#content", (field, n) => {
    field.value = "é".repeat(n / 2 + 1);
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }, limit);
  await page.locator(".save button").click();
  await page.waitForFunction(() => document.querySelector("#announcements").textContent.includes("the limit is"));
  equal(new URL(page.url()).pathname, "/", "still on the form");
  await close(watched);
}

export async function copy_button_copies_and_announces_it({ base, open, close, work }) {
  const { code } = await paste(base, RUST, "?lang=rust");
  await work();
  const watched = await open();
  const { page } = watched;
  await page.goto(`${base}/${code}`);
  await allowClipboard(watched);
  // The button shows the result for 1.6 s.
  await page.evaluate(() => {
    const button = document.querySelector("#copy");
    const note = () => { window.result ??= button.textContent; };
    new MutationObserver(note).observe(button, { childList: true });
  });
  await page.locator("#copy").click();
  await announced(page, "Copied");
  equal(await page.evaluate(() => window.result), "Copied", "on the button");
  equal(await clipboard(page), RUST, "clipboard");
  await page.waitForFunction(() => document.querySelector("#copy").textContent === "Copy");
  // Selected by hand: the line numbers are not part of the text.
  await page.evaluate(() => navigator.clipboard.writeText("before"));
  await page.evaluate(() => getSelection().selectAllChildren(document.querySelector("#code code")));
  await page.keyboard.down("Control");
  await page.keyboard.press("c");
  await page.keyboard.up("Control");
  await page.waitForFunction(async () => (await navigator.clipboard.readText()) !== "before");
  const copied = (await clipboard(page)).replaceAll("\u00a0", " ");
  equal(copied.replace(/\n$/, ""), RUST.replace(/\n$/, ""), "copied by hand");
  await close(watched);
}

export async function file_is_saved_with_the_language_of_its_name({ open, close, work }) {
  const watched = await open();
  const { page } = watched;
  const { writeFile, mkdtemp, rm } = await import("node:fs/promises");
  const { tmpdir } = await import("node:os");
  const folder = await mkdtemp(`${tmpdir()}/pastes-`);
  await writeFile(`${folder}/tool.py`, "print('été')\r\n");
  const code = await save(watched, "", async () => {
    await (await page.$("#file")).uploadFile(`${folder}/tool.py`);
  });
  await rm(folder, { recursive: true });
  await work();
  await appears(page, "#code");
  equal(await shownText(page), "print('été')\r\n", `bytes of ${code} are as they were`);
  equal(await page.$eval(".facts dd", (it) => it.textContent), "Python", "language");
  await close(watched);
}
