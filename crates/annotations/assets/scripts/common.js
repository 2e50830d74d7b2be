// Writing notes, and comfort in reading them. The page can be read, searched and filtered without.
//
// These files are served as one; this one comes first.
"use strict";
const notes = (() => {
  const one = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const limit = 20_000;

  // Tells people who do not see the page change. The same words twice are still read twice.
  function say(words) {
    const place = one("#say");
    place.textContent = "";
    setTimeout(() => {
      place.textContent = words;
    }, 50);
  }

  // Asks the service; the answer's JSON, or an error in words for people.
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
      throw new Error("The service could not be reached. What you wrote is still here; try again.");
    }
    if (response.status === 204) return null;
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) throw new Error(answer.detail ?? "That did not work.");
    return answer;
  }

  const bodies = (text, tags) => [
    { type: "TextualBody", value: text, purpose: "commenting" },
    ...tags.map((value) => ({ type: "TextualBody", value, purpose: "tagging" })),
  ];
  // What a note says, without its tags.
  const textIn = (note) => note.body.find((it) => it.purpose !== "tagging")?.value ?? "";
  const tagsOf = (text) => [...new Set(text.split(",").map((tag) => tag.trim()).filter(Boolean))];

  // The theme: as the system has it, light, or dark.
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
        // Then the choice lasts as long as the page.
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
