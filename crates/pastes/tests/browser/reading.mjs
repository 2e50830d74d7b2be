// Reading, deleting and reporting pastes.
import { equal, holds, auditPage } from "./watch.mjs";
import { RUST, downloaded, paste, announced, save, shownText, handled } from "./steps.mjs";

const LONG = `${"x ".repeat(300)}\nsecond\nthird\nfourth\n`;

async function opened({ base, open, work }, text, query, options) {
  const made = await paste(base, text, query);
  await work();
  const watched = await open(options);
  await watched.page.goto(`${base}/${made.code}`);
  return { ...made, watched, page: watched.page };
}

export async function paste_page_passes_the_audit(check) {
  const { watched, page } = await opened(check, RUST, "?lang=rust");
  await auditPage(watched, "paste");
  for (const summary of await page.$$(".more summary")) await summary.click();
  await page.waitForFunction(() => document.querySelector(".qr").naturalWidth > 100);
  await auditPage(watched, "paste-open");
  await check.close(watched);
}

export async function every_colour_has_enough_contrast(check) {
  const samples = {
    diff: "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n",
    md: "# Title\n*a* **b** `c`\n> quote\n[x](y)\n",
    html: "<!DOCTYPE html>\n<p class=\"a\" id='b'>&amp;<!-- c --></p>\n",
    python: "@cache\ndef f(x: int = 1) -> str:\n    return f'{x}\\n' and None  # why\n",
    css: "a:hover { color: #fff; margin: 0 1px !important }\n",
    c: "#include <a.h>\nint \u202emain(void) { return 0x1f; }\n",
    yaml: "a: &x\n  - true\n  - 'b'\n",
  };
  for (const [language, text] of Object.entries(samples)) {
    const { watched } = await opened(check, text, `?lang=${language}`);
    await auditPage(watched, `colours-${language}`);
    await check.close(watched);
  }
}

export async function long_lines_scroll_in_their_own_box(check) {
  const { watched, page } = await opened(check, LONG);
  await page.setViewport({ width: 360, height: 740 });
  const [box, whole] = await page.evaluate(() => {
    const code = document.querySelector("#code");
    return [code.scrollWidth > code.clientWidth, document.scrollingElement.scrollWidth];
  });
  holds(box, "the box scrolls");
  equal(whole, 360, "width of the page");
  await page.keyboard.press("w");
  await announced(page, "Long lines wrap");
  const wrapped = await page.$eval("#code", (code) => code.scrollWidth <= code.clientWidth);
  holds(wrapped, "wrapped lines fit");
  await auditPage(watched, "wrapped");
  await page.reload();
  equal(await page.$eval("#wrap", (it) => it.getAttribute("aria-pressed")), "true", "remembered");
  await check.close(watched);
}

export async function long_lines_wrap_on_a_narrow_screen_until_the_user_chooses(check) {
  const { watched, page } = await opened(check, LONG);
  const wraps = () => page.$eval("#wrap", (it) => it.getAttribute("aria-pressed"));
  equal(await wraps(), "false", "on a wide screen");
  await page.setViewport({ width: 360, height: 740 });
  await page.reload();
  equal(await wraps(), "true", "on a narrow screen");
  await page.keyboard.press("w");
  await announced(page, "Long lines scroll");
  await page.reload();
  equal(await wraps(), "false", "the choice is remembered");
  await check.close(watched);
}

export async function shortcuts_do_what_the_help_says(check) {
  const { watched, page, code } = await opened(check, RUST, "?lang=rust");
  const home = `${check.base}/${code}`;
  const goes = async (key, to) => {
    await Promise.all([page.waitForNavigation(), page.keyboard.press(key)]);
    equal(page.url(), to, `key ${key}`);
    await page.goto(home);
  };
  await goes("n", `${check.base}/`);
  await goes("m", `${check.base}/mine`);
  await goes("r", `${check.base}/raw/${code}`);
  equal(await downloaded(watched, () => page.keyboard.press("d")), RUST, "download");
  await page.keyboard.press("q");
  holds(await page.$eval(".more details", (it) => it.open), "q opens the QR code");
  await page.keyboard.press("?");
  await page.waitForSelector("#help[open]");
  const keys = await page.$$eval("#help kbd", (all) => all.map((it) => it.textContent));
  for (const key of ["n", "m", "t", "?", "c", "w", "r", "d", "q", "j", "k"]) {
    holds(keys.includes(key), `${key} is explained`);
  }
  await auditPage(watched, "help");
  equal(await handled(page, "n"), false, "keys do nothing while the help is open");
  // Users of voice control can switch single keys off.
  await page.locator("#single-keys").click();
  await page.keyboard.press("Escape");
  await page.waitForSelector("#help:not([open])");
  equal(await handled(page, "n"), false, "switched off");
  await page.reload();
  equal(await handled(page, "n"), false, "and remembered");
  await check.close(watched);
}

export async function shortcuts_are_off_while_a_field_has_focus({ base, open, close }) {
  const watched = await open();
  const { page } = watched;
  await page.goto(`${base}/`);
  const letters = "nmt?cwrdqjk";
  for (const field of ["#content", "#alias"]) {
    await page.focus(field);
    await page.keyboard.type(letters);
    equal(await page.$eval(field, (it) => it.value), letters, field);
  }
  equal(await handled(page, "n"), false, "only a letter");
  await page.evaluate(() => document.activeElement.blur());
  equal(await handled(page, "w"), false, "there is nothing to wrap here");
  equal(await handled(page, "t"), true, "a key again");
  await close(watched);
}

export async function theme_is_remembered_and_set_before_the_first_paint({ base, open, close }) {
  const watched = await open();
  const { page } = watched;
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
  await page.goto(`${base}/`);
  const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const light = await ground();
  await page.locator("#theme").click();
  equal(await ground(), light, "auto, then light");
  await page.locator("#theme").click();
  const dark = await ground();
  holds(dark !== light, "dark");
  await announced(page, "Theme: dark");
  // The theme when the body of the next page appears is the theme of its first paint.
  await page.evaluateOnNewDocument(() => {
    new MutationObserver((_, observer) => {
      if (!document.body) return;
      window.firstTheme = document.documentElement.dataset.theme ?? "none";
      observer.disconnect();
    }).observe(document, { childList: true, subtree: true });
  });
  await page.reload();
  equal(await page.evaluate(() => window.firstTheme), "dark", "before anything is painted");
  equal(await ground(), dark, "remembered");
  await page.locator("#theme").click();
  await page.reload();
  equal(await ground(), light, "the system decides again");
  await close(watched);
}

export async function lines_can_be_linked_and_marked(check) {
  const { watched, page, code } = await opened(check, LONG);
  const marked = () => page.$$eval(".l.marked", (all) => all.map((line) => line.id));
  await page.locator("#L2 > a").click();
  equal(await page.evaluate(() => location.hash), "#L2", "address");
  equal(await marked(), ["L2"], "one line");
  await page.keyboard.down("Shift");
  await page.locator("#L4 > a").click();
  await page.keyboard.up("Shift");
  equal(await marked(), ["L2", "L3", "L4"], "three lines");
  await page.goto("about:blank");
  await page.goto(`${check.base}/${code}#L2-L3`);
  equal(await marked(), ["L2", "L3"], "by address");
  await page.keyboard.press("j");
  equal(await marked(), ["L4"], "next");
  await page.keyboard.press("j");
  await page.keyboard.press("k");
  await page.keyboard.down("Shift");
  await page.keyboard.press("j");
  await page.keyboard.up("Shift");
  equal(await marked(), ["L3", "L4"], "one more");
  await announced(page, "Lines 3 to 4");
  await auditPage(watched, "marked");
  await check.close(watched);
}

export async function every_control_is_reached_by_tab_and_shows_its_focus(check) {
  const { watched, page } = await opened(check, RUST);
  for (const place of [page.url(), `${check.base}/`, `${check.base}/mine`]) {
    await page.goto(place);
    await page.evaluate(() => document.activeElement.blur());
    const wanted = await page.$$eval("a[href], button, input, select, textarea, summary, pre", (all) =>
      all.filter((it) => it.tabIndex >= 0 && it.type !== "hidden" && it.checkVisibility() &&
        !it.closest("dialog:not([open])")).length);
    const reached = await page.evaluate(() => (window.reached = new Set()).size);
    equal(reached, 0, "nothing yet");
    for (let n = 0; n < wanted + 3; n++) {
      await page.keyboard.press("Tab");
      const missing = await page.evaluate(() => {
        const at = document.activeElement;
        if (at === document.body) return null;
        window.reached.add(at);
        const ring = (it) => getComputedStyle(it).outlineStyle !== "none";
        return ring(at) || at.closest(".editor:focus-within") ? null : at.outerHTML.slice(0, 80);
      });
      equal(missing, null, "an element without focus ring");
    }
    equal(await page.evaluate(() => window.reached.size), wanted, `elements reached on ${place}`);
  }
  await page.goto(`${check.base}/mine`);
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  equal(await page.evaluate(() => document.activeElement.id), "main", "the skip link skips");
  await check.close(watched);
}

export async function burning_paste_opens_by_a_click_and_is_then_deleted(check) {
  const { watched, page, code } = await opened(check, RUST, "?burn=1&lang=rust");
  await page.reload();
  equal(await page.$("#code"), null, "looking does not burn");
  holds(!(await page.content()).includes("println"), "nothing of it is on the page");
  await auditPage(watched, "burn");
  await Promise.all([page.waitForNavigation(), page.locator(".burn .primary").click()]);
  equal(await shownText(page), RUST, "text");
  await auditPage(watched, "burnt");
  const gone = await page.goto(`${check.base}/${code}`);
  equal(gone.status(), 404, "after reading");
  await auditPage(watched, "not-found");
  await check.close(watched);
}

export async function burnt_paste_can_be_saved_as_a_file(check) {
  const { watched, page } = await opened(check, RUST, "?burn=1");
  await Promise.all([page.waitForNavigation(), page.locator(".burn .primary").click()]);
  const text = await downloaded(watched, () => page.locator("[data-save]").click());
  equal(text, RUST, "file");
  await announced(page, "Saved");
  await check.close(watched);
}

export async function hostile_text_stays_text(check) {
  const attack = `<script>window.hit = 1</script><img src=x onerror="window.hit = 1">\n</code></pre><h1>x</h1>\n`;
  for (const language of ["html", "javascript", "text"]) {
    const { watched, page, code } = await opened(check, attack, `?lang=${language}`);
    equal(await shownText(page), attack, "shown");
    equal(await page.evaluate(() => window.hit ?? null), null, "not run");
    equal(await page.$$eval("h1", (all) => all.length), 1, "no foreign heading");
    await page.goto(`${check.base}/raw/${code}`);
    equal(await page.evaluate(() => [window.hit ?? null, document.scripts.length]), [null, 0], "raw");
    await check.close(watched);
  }
}

export async function binary_paste_is_a_download(check) {
  const { watched, page } = await opened(check, new Uint8Array([137, 80, 78, 71, 0, 1, 2, 255]));
  equal(await page.$("#code"), null, "no text");
  holds(await page.$(".binary a[download]"), "a download");
  await auditPage(watched, "binary");
  await check.close(watched);
}

export async function my_pastes_lists_and_deletes({ base, open, close, work }) {
  const watched = await open();
  const { page } = watched;
  await page.goto(`${base}/mine`);
  await auditPage(watched, "mine-empty");
  const code = await save(watched, "mine\n", (it) => it.locator("#remember").click());
  await save(watched, "burning\n", (it) => it.locator("input[name=burn]").click());
  await work();
  await page.goto(`${base}/mine`);
  equal(await page.$$eval(".mine h2", (all) => all.length), 2, "both, although asked once");
  await page.locator(`.mine li:has(a[href$="${code}"]) summary`).click();
  await auditPage(watched, "mine");
  await Promise.all([
    page.waitForNavigation(),
    page.locator(`.mine form[action="/${code}/delete"] button`).click(),
  ]);
  equal(await page.$eval("h1", (it) => it.textContent), "Deleted", "heading");
  await auditPage(watched, "deleted");
  equal((await page.goto(`${base}/${code}`)).status(), 404, "gone");
  await page.goto(`${base}/mine`);
  equal(await page.$$eval(".mine h2", (all) => all.length), 1, "one is left");
  await close(watched);
}

export async function token_deletes_and_report_is_stored(check) {
  const { watched, page, code, token } = await opened(check, "to be deleted\n");
  await page.locator(".more details:nth-of-type(3) summary").click();
  await page.locator("#details").fill("It is not right.");
  await Promise.all([page.waitForNavigation(), page.locator("form[action$=report] button").click()]);
  equal(await page.$eval("h1", (it) => it.textContent), "Report sent", "report");
  await page.goto(`${check.base}/${code}`);
  await page.locator(".more details:nth-of-type(2) summary").click();
  await page.locator("#delete-token").fill("not the token");
  await Promise.all([page.waitForNavigation(), page.locator("form[action$=delete] button").click()]);
  holds((await page.$eval("h1", (it) => it.textContent)) !== "Deleted", "a wrong token deletes nothing");
  await auditPage(watched, "wrong-token");
  await page.goto(`${check.base}/${code}`);
  await page.locator(".more details:nth-of-type(2) summary").click();
  await page.locator("#delete-token").fill(token);
  await Promise.all([page.waitForNavigation(), page.locator("form[action$=delete] button").click()]);
  equal(await page.$eval("h1", (it) => it.textContent), "Deleted", "delete");
  equal((await page.goto(`${check.base}/${code}`)).status(), 404, "gone");
  await check.close(watched);
}
