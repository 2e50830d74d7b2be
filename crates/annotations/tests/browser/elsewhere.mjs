// A page of another origin with our script in it.
import { equal, holds } from "../../../pastes/tests/browser/watch.mjs";
import { pictures } from "./pictures.mjs";
import { signUp } from "./steps.mjs";

// The parts of our script in a page: its own tree, which the page's selectors do not see.
const part = (page, selector) =>
  page.evaluateHandle((wanted) => {
    const { shadowRoot } = [...document.body.children].find((it) => it.shadowRoot);
    return shadowRoot.querySelector(wanted);
  }, selector);

// Its requests go to another origin than the page's. No other request may.
function excuse(watched) {
  watched.wrong = watched.wrong.filter((it) => !it.startsWith("request to"));
  holds(watched.wrong.length === 0 || watched.wrong.every((it) => it.includes("favicon")), watched.wrong.join("; "));
  watched.wrong = [];
}

const visible = (page, selector) =>
  page.waitForFunction(
    (wanted) => {
      const host = [...document.body.children].find((it) => it.shadowRoot);
      return host?.shadowRoot.querySelector(wanted)?.checkVisibility();
    },
    {},
    selector,
  );

// Waits until the notes of the page were fetched: a later response would move the buttons.
const fetched = (page) =>
  page.waitForFunction(() => {
    const host = [...document.body.children].find((it) => it.shadowRoot);
    return /\d/.test(host?.shadowRoot.querySelector("button").textContent);
  });

// Waits for the note with this text.
const said = (page, text) =>
  page.waitForFunction(
    (wanted) => {
      const { shadowRoot } = [...document.body.children].find((it) => it.shadowRoot);
      return [...shadowRoot.querySelectorAll("article p")].some((it) => it.textContent === wanted);
    },
    {},
    text,
  );

export async function log_in_link_is_shown_to_anonymous_readers({ open, close, base, control, stepTimeout }) {
  const watched = await open();
  const { page } = watched;
  await page.goto(`${control}/page`);
  await fetched(page);
  await (await part(page, "button")).click();
  await visible(page, "section a");
  equal(await (await part(page, "section a")).evaluate((it) => it.href), `${base}/account`, "where to log in");
  holds(!(await (await part(page, "section div button")).evaluate((it) => it.checkVisibility())), "nothing to write with");
  await pictures(page, "elsewhere");
  // Log in meanwhile, in another window.
  const other = await page.browserContext().newPage();
  other.setDefaultTimeout(stepTimeout);
  await signUp({ page: other, base });
  await other.close();
  await page.bringToFront();
  await page.evaluate(() => dispatchEvent(new Event("focus")));
  await visible(page, "section div button");
  excuse(watched);
  return close(watched);
}

export async function note_saved_twice_at_once_is_stored_once({ open, close, control }) {
  const watched = await open();
  const { page } = watched;
  await signUp(watched);
  await page.goto(`${control}/page`);
  await fetched(page);
  await (await part(page, "button")).click();
  await visible(page, "section div button");
  const sent = [];
  page.on("request", (it) => {
    if (it.method() === "POST" && it.url().endsWith("/api/annotations")) sent.push(it.headers()["idempotency-key"]);
  });
  await (await part(page, "section div button")).click();
  await (await part(page, "textarea")).type("Pressed twice");
  const locked = await (await part(page, "form")).evaluate((form) => {
    form.requestSubmit();
    const disabled = form.querySelector("button").disabled;
    form.requestSubmit();
    return disabled;
  });
  holds(locked, "the button rests while it is saved");
  await said(page, "Pressed twice");
  const count = await (await part(page, "section")).evaluate(
    (it) => [...it.querySelectorAll("article p")].filter((words) => words.textContent === "Pressed twice").length,
  );
  equal(count, 1, "one note");
  holds(sent.length === 1 && sent[0], `it was sent with a key: ${sent}`);
  excuse(watched);
  return close(watched);
}

export async function page_of_another_origin_shows_and_saves_notes({ open, close, control, order }) {
  const watched = await open();
  const { page } = watched;
  await signUp(watched);
  await page.goto(`${control}/page`);
  const inside = (act, ...values) =>
    page.evaluate(act, ...values);
  await fetched(page);
  await (await part(page, "button")).click();
  await visible(page, "section div button");
  await inside(() => {
    const range = document.createRange();
    range.selectNodeContents(document.querySelector("#words"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    const { shadowRoot } = [...document.body.children].find((it) => it.shadowRoot);
    shadowRoot.querySelector("section div button").click();
    shadowRoot.querySelector("textarea").value = "A note from elsewhere";
    shadowRoot.querySelector("form").requestSubmit();
  });
  await said(page, "A note from elsewhere");
  const quoted = await inside(() => {
    const { shadowRoot } = [...document.body.children].find((it) => it.shadowRoot);
    return shadowRoot.querySelector("article blockquote").textContent;
  });
  equal(quoted, "Words of another page.", "what is quoted");
  await order("work");
  excuse(watched);
  return close(watched);
}

export async function focus_returns_to_the_button_that_opened_the_notes({ open, close, control }) {
  const watched = await open();
  const { page } = watched;
  await signUp(watched);
  await page.goto(`${control}/page`);
  await fetched(page);
  const opener = await part(page, "button");
  const expanded = () => opener.evaluate((it) => it.getAttribute("aria-expanded"));
  equal(await expanded(), "false", "closed");
  await opener.click();
  equal(await expanded(), "true", "open");
  await visible(page, "section div button");
  await (await part(page, "section div button")).click();
  await (await part(page, "textarea")).type("By the keyboard");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await said(page, "By the keyboard");
  holds(await opener.evaluate((it) => it.getRootNode().activeElement === it), "not lost to the page around");
  excuse(watched);
  return close(watched);
}
