// A page of another origin with our script in it.
import { equal, holds } from "../../../pastes/tests/browser/watch.mjs";
import { signUp } from "./steps.mjs";

export async function a_page_elsewhere_shows_and_takes_notes({ open, close, control, order }) {
  const watched = await open();
  const { page } = watched;
  await signUp(watched);
  await page.goto(`${control}/page`);
  const inside = (act, ...values) =>
    page.evaluate(act, ...values);
  await page.waitForFunction(() => [...document.body.children].some((it) => it.shadowRoot));
  await inside(() => {
    const range = document.createRange();
    range.selectNodeContents(document.querySelector("#words"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    const { shadowRoot } = [...document.body.children].find((it) => it.shadowRoot);
    shadowRoot.querySelector("button").click();
    shadowRoot.querySelector("section div button").click();
    shadowRoot.querySelector("textarea").value = "A note from elsewhere";
    shadowRoot.querySelector("form").requestSubmit();
  });
  await page.waitForFunction(() => {
    const { shadowRoot } = [...document.body.children].find((it) => it.shadowRoot);
    return shadowRoot.querySelector("article p")?.textContent === "A note from elsewhere";
  });
  const quoted = await inside(() => {
    const { shadowRoot } = [...document.body.children].find((it) => it.shadowRoot);
    return shadowRoot.querySelector("article blockquote").textContent;
  });
  equal(quoted, "Words of another page.", "what is quoted");
  await order("work");
  // Its requests went to another origin than the page's, as they must; nothing else is excused.
  watched.wrong = watched.wrong.filter((it) => !it.startsWith("request to"));
  holds(watched.wrong.length === 0 || watched.wrong.every((it) => it.includes("favicon")), watched.wrong.join("; "));
  watched.wrong = [];
  return close(watched);
}
