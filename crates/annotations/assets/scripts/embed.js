// Notes in the margin of any page: <script src="ORIGIN/embed.js" defer></script>
//
// The settings of the service must allow the origin of the page. Page and service must be of the same site, as
// www.example.org and notes.example.org are; otherwise the browser does not send the log-in. A user who is
// logged in at the service sees their notes here, and can annotate the selection.
"use strict";
(() => {
  const service = new URL(document.currentScript.src).origin;
  const here = location.href.split("#")[0];

  const host = document.createElement("div");
  const shadow = host.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`
    :host { all: initial; position: fixed; right: 12px; bottom: 12px; z-index: 2147483000; font: 15px/1.5 system-ui, sans-serif; color-scheme: light dark; }
    section { width: min(340px, calc(100vw - 24px)); max-height: 70vh; overflow-y: auto; padding: 12px; border: 1px solid light-dark(#85887f, #767c74); border-radius: 12px; background: light-dark(#fff, #1b1e1b); color: light-dark(#1f211e, #e6e5de); box-shadow: 0 8px 32px rgb(0 0 0 / 25%); }
    button { font: inherit; padding: 4px 12px; border: 1px solid light-dark(#0b6a5b, #7ccfba); border-radius: 8px; background: light-dark(#0b6a5b, #7ccfba); color: light-dark(#fff, #0c1f1a); cursor: pointer; }
    a { display: inline-block; margin-bottom: 8px; color: light-dark(#0b6a5b, #7ccfba); } button:disabled { opacity: 0.6; cursor: default; }
    article { padding: 8px 0; border-top: 1px solid light-dark(#dedbd1, #333833); overflow-wrap: anywhere; }
    blockquote { margin: 4px 0; padding-left: 8px; border-left: 3px solid #f8d96b; font-style: italic; }
    textarea { box-sizing: border-box; width: 100%; font: inherit; margin: 6px 0; }
    p { margin: 4px 0; white-space: pre-wrap; } [hidden] { display: none; }`);
  shadow.adoptedStyleSheets = [sheet];

  const make = (name, words, parent) => {
    const element = document.createElement(name);
    element.textContent = words ?? "";
    parent?.append(element);
    return element;
  };
  const opener = make("button", "Notes", shadow);
  const panel = make("section", "", shadow);
  panel.hidden = true;
  panel.setAttribute("aria-label", "Notes");
  const head = make("div", "", panel);
  const status = make("p", "", head);
  status.setAttribute("role", "status");
  const add = make("button", "Annotate the selection", head);
  add.hidden = true;
  const enter = make("a", "Log in to annotate", head);
  enter.hidden = true;
  Object.assign(enter, { href: `${service}/account`, target: "_blank", rel: "noopener" });
  const form = make("form", "", panel);
  form.hidden = true;
  const quote = make("blockquote", "", form);
  const area = make("textarea", "", form);
  area.setAttribute("aria-label", "Your note");
  const save = make("button", "Save", form);
  const list = make("div", "", panel);
  let exact = "";

  // A repeated request has the same key, so that it makes one note.
  const freshKey = () => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
  let key = freshKey();

  async function ask(path, options = {}) {
    const response = await fetch(service + path, {
      credentials: "include",
      signal: AbortSignal.timeout(15_000),
      ...options,
    });
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) throw new Error(answer.detail ?? "The request failed.");
    return answer;
  }

  const textOf = (note) => note.body.find((it) => it.purpose !== "tagging")?.value ?? "";
  const quoted = (note) =>
    note.target.selector?.find((it) => it.type === "TextQuoteSelector")?.exact ?? "";

  // Shows a link to the log-in to readers who are not logged in.
  async function showLogIn() {
    const { user } = await ask("/api/profile");
    add.hidden = !user;
    enter.hidden = Boolean(user);
  }

  async function refresh() {
    try {
      await showLogIn();
      const found = await ask(`/api/search?limit=100&url=${encodeURIComponent(here)}`);
      opener.textContent = `Notes (${found.rows.length}${found.next ? "+" : ""})`;
      status.textContent = found.rows.length === 0 ? "No notes on this page." : "";
      list.replaceChildren(
        ...found.rows.map((note) => {
          const card = make("article");
          make("b", note.creator.name, card);
          if (quoted(note)) make("blockquote", quoted(note), card);
          make("p", textOf(note), card);
          return card;
        }),
      );
    } catch (error) {
      status.textContent = `The notes cannot be shown: ${error.message}`;
    }
  }

  opener.setAttribute("aria-expanded", "false");
  opener.addEventListener("click", () => {
    panel.hidden = !panel.hidden;
    opener.setAttribute("aria-expanded", String(!panel.hidden));
    if (!panel.hidden) refresh();
  });
  add.addEventListener("mousedown", (event) => event.preventDefault());
  add.addEventListener("click", () => {
    exact = getSelection().toString().trim().slice(0, 4000);
    quote.textContent = exact;
    quote.hidden = exact === "";
    form.hidden = false;
    key = freshKey();
    area.focus();
  });
  area.addEventListener("input", () => {
    key = freshKey();
  });
  // The user may have logged in meanwhile.
  addEventListener("focus", () => {
    if (!panel.hidden && !enter.hidden) refresh();
  });
  // The browser moves the focus to the page when its button is disabled.
  const isLost = () => document.activeElement === document.body;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (save.disabled) return;
    const from = shadow.activeElement;
    save.disabled = true;
    status.textContent = "";
    const target = { source: here, title: document.title.slice(0, 300) };
    if (exact) target.selector = [{ type: "TextQuoteSelector", exact }];
    try {
      await ask("/api/annotations", {
        method: "POST",
        headers: { "Content-Type": "application/json", "Idempotency-Key": key },
        body: JSON.stringify({ target, body: [{ type: "TextualBody", value: area.value.trim() }] }),
      });
      form.reset();
      const wasHere = form.contains(shadow.activeElement);
      form.hidden = true;
      if (wasHere || isLost()) opener.focus();
      await refresh();
    } catch (error) {
      status.textContent = error.message;
      save.disabled = false;
      if (isLost()) from?.focus();
    } finally {
      save.disabled = false;
    }
  });
  document.body.append(host);
  refresh();
})();
