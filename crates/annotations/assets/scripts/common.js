// Writes notes, and updates the page without loading it again. The page can be read, searched and filtered
// without scripts.
//
// These files are served as one; this one comes first.
"use strict";
const notes = (() => {
  const one = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const limit = 20_000;

  // Announces a change to screen readers, also the same text twice.
  function say(words) {
    const region = one("#announcements");
    region.textContent = "";
    setTimeout(() => {
      region.textContent = words;
    }, 50);
  }

  // Sends a request. Returns the JSON of the response, or throws an error that the page can show.
  async function ask(method, path, body, more) {
    const headers = { Accept: "application/json", ...more };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    let response;
    try {
      response = await fetch(path, {
        method,
        headers,
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: AbortSignal.timeout(limit),
      });
    } catch {
      throw new Error("The service cannot be reached. Your text is still here; try again.");
    }
    if (response.status === 204) return null;
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) throw new Error(answer.detail ?? "The request failed.");
    return answer;
  }

  const bodies = (text, tags) => [
    { type: "TextualBody", value: text, purpose: "commenting" },
    ...tags.map((value) => ({ type: "TextualBody", value, purpose: "tagging" })),
  ];
  // The text of a note, without its tags.
  const textIn = (note) => note.body.find((it) => it.purpose !== "tagging")?.value ?? "";
  const tagsOf = (text) => [...new Set(text.split(",").map((tag) => tag.trim()).filter(Boolean))];

  // The theme: that of the system, light, or dark.
  function setUpTheme() {
    const root = document.documentElement;
    const button = one("#theme");
    const themes = ["auto", "light", "dark"];
    const now = () => root.dataset.theme ?? "auto";
    const show = () => {
      one(".visually-hidden", button).textContent = `Theme: ${now()}`;
      button.title = `Theme: ${now()}`;
    };
    button.addEventListener("click", () => {
      const next = themes[(themes.indexOf(now()) + 1) % themes.length];
      if (next === "auto") delete root.dataset.theme;
      else root.dataset.theme = next;
      try {
        if (next === "auto") localStorage.removeItem("notes.theme");
        else localStorage.setItem("notes.theme", next);
      } catch {
        // Without storage the choice lasts until the page is closed.
      }
      show();
      say(`Theme: ${next}`);
    });
    show();
    button.hidden = false;
  }
  setUpTheme();

  const reader = one("main.reader");
  const url = reader?.dataset.url;
  return { one, all, say, ask, bodies, textIn, tagsOf, reader, url };
})();
