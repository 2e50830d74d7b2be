// Comfort for the pages of the paste service. Every page works without this file.
"use strict";
(() => {
  const root = document.documentElement;
  const one = (selector) => document.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];

  // Storage can be forbidden or full: then choices last as long as the page.
  const stored = {
    get(name) {
      try {
        return localStorage.getItem(`pastes.${name}`);
      } catch {
        return null;
      }
    },
    set(name, value) {
      try {
        if (value === null) localStorage.removeItem(`pastes.${name}`);
        else localStorage.setItem(`pastes.${name}`, value);
      } catch {
        // Nothing to do.
      }
    },
  };

  // Tells people who do not see the page change. The same words twice are still read twice.
  function say(words) {
    const place = one("#say");
    place.textContent = "";
    setTimeout(() => {
      place.textContent = words;
    }, 50);
  }

  // Shows a result on the button that was pressed, then its own words again.
  function answer(button, words) {
    say(words);
    button.dataset.words ??= button.textContent;
    button.textContent = words;
    clearTimeout(button.answering);
    button.answering = setTimeout(() => {
      button.textContent = button.dataset.words;
    }, 1600);
  }

  // ---- theme ---------------------------------------------------------------------------------

  function setUpTheme() {
    const button = one("#theme");
    const themes = ["auto", "light", "dark"];
    const now = () => root.dataset.theme ?? "auto";
    const show = () => {
      button.querySelector(".visually-hidden").textContent = `Theme: ${now()}`;
      button.title = `Theme: ${now()}`;
    };
    button.addEventListener("click", () => {
      const next = themes[(themes.indexOf(now()) + 1) % themes.length];
      if (next === "auto") delete root.dataset.theme;
      else root.dataset.theme = next;
      stored.set("theme", next === "auto" ? null : next);
      show();
      say(`Theme: ${next}`);
    });
    show();
    button.hidden = false;
  }

  // ---- copying and saving --------------------------------------------------------------------

  const textOf = (element) =>
    element instanceof HTMLInputElement ? element.value : element.querySelector("code").textContent;

  // What is not whole on the page is fetched.
  async function textFor(button) {
    if (!button.dataset.from) return textOf(one(button.dataset.copy));
    const response = await fetch(button.dataset.from, { signal: AbortSignal.timeout(20_000) });
    if (!response.ok) throw new Error(`status ${response.status}`);
    return response.text();
  }

  async function toClipboard(text) {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text);
      return;
    }
    // Plain http on a name that is not localhost: only the old way is allowed there.
    const box = document.createElement("textarea");
    box.value = text;
    box.className = "visually-hidden";
    document.body.append(box);
    const before = document.activeElement;
    box.select();
    const copied = document.execCommand("copy");
    box.remove();
    before?.focus();
    if (!copied) throw new Error("not allowed");
  }

  function setUpCopying() {
    for (const button of all("[data-copy]")) {
      button.hidden = false;
      button.addEventListener("click", async () => {
        try {
          await toClipboard(await textFor(button));
          answer(button, "Copied");
        } catch {
          answer(button, "Could not copy");
        }
      });
    }
    for (const button of all("[data-save]")) {
      button.hidden = false;
      button.addEventListener("click", () => {
        const link = document.createElement("a");
        link.href = URL.createObjectURL(new Blob([textOf(one(button.dataset.save))]));
        link.download = button.dataset.name;
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
        answer(button, "Saved");
      });
    }
    for (const field of all(".copyable input")) {
      field.addEventListener("focus", () => field.select());
    }
  }

  // ---- lines ---------------------------------------------------------------------------------

  function setUpWrap() {
    const button = one("#wrap");
    if (!button) return;
    const show = () => button.setAttribute("aria-pressed", root.classList.contains("wrap"));
    button.addEventListener("click", () => {
      const on = root.classList.toggle("wrap");
      stored.set("wrap", on ? "on" : null);
      show();
      say(on ? "Long lines wrap" : "Long lines scroll");
    });
    show();
    button.hidden = false;
  }

  // #L10 or #L10-L20.
  function range() {
    const found = /^#L(\d+)(?:-L(\d+))?$/.exec(location.hash);
    if (!found) return null;
    const [from, to] = [Number(found[1]), Number(found[2] ?? found[1])];
    return { from: Math.min(from, to), to: Math.max(from, to) };
  }

  function markLines() {
    for (const line of all(".l.marked")) line.classList.remove("marked");
    const marked = range();
    if (!marked) return;
    for (let n = marked.from; n <= marked.to; n++) {
      const line = document.getElementById(`L${n}`);
      if (!line) break;
      line.classList.add("marked");
    }
    document.getElementById(`L${marked.from}`)?.scrollIntoView({ block: "nearest" });
  }

  function choose(from, to) {
    const name = from === to ? `#L${from}` : `#L${Math.min(from, to)}-L${Math.max(from, to)}`;
    history.replaceState(null, "", name);
    markLines();
  }

  // Moves the marked line, or with `extend` the end of the marked lines.
  function step(by, extend) {
    const count = all(".code .l").length;
    if (count === 0) return;
    const now = range();
    if (!now) {
      choose(1, 1);
    } else if (extend) {
      choose(now.from, Math.min(Math.max(now.to + by, now.from), count));
    } else {
      const line = Math.min(Math.max((by > 0 ? now.to : now.from) + by, 1), count);
      choose(line, line);
    }
    const { from, to } = range();
    document.getElementById(`L${to}`)?.scrollIntoView({ block: "nearest" });
    say(from === to ? `Line ${from}` : `Lines ${from} to ${to}`);
  }

  function setUpLines() {
    const code = one(".code");
    if (!code) return;
    code.addEventListener("click", (event) => {
      const number = event.target.closest(".l > a");
      if (!number || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      const line = Number(number.parentElement.id.slice(1));
      const now = range();
      choose(event.shiftKey && now ? now.from : line, line);
    });
    addEventListener("hashchange", markLines);
    markLines();
  }

  // ---- keys ----------------------------------------------------------------------------------

  const typing = (target) =>
    target instanceof Element &&
    target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]") !== null;

  function setUpKeys() {
    const dialog = one("#help");
    const switched = one("#single-keys");
    switched.checked = stored.get("keys") !== "off";
    switched.addEventListener("change", () => stored.set("keys", switched.checked ? null : "off"));

    const button = one("#keys");
    button.hidden = false;
    button.title = "Keyboard shortcuts";
    button.addEventListener("click", () => {
      one("#help-list").replaceChildren(...shortcuts().flatMap(entry));
      dialog.showModal();
    });

    document.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        const form = one("form.create");
        if (form) {
          event.preventDefault();
          form.requestSubmit();
        }
        return;
      }
      const modified = event.ctrlKey || event.metaKey || event.altKey;
      if (modified || event.isComposing || event.defaultPrevented) return;
      if (!switched.checked || dialog.open || typing(event.target)) return;
      if (one(".code") && (event.key === "j" || event.key === "J")) return step(1, event.shiftKey);
      if (one(".code") && (event.key === "k" || event.key === "K")) return step(-1, event.shiftKey);
      const target = all("[data-key]").find((it) => it.dataset.key === event.key && !it.hidden);
      if (!target) return;
      event.preventDefault();
      if (target.matches("summary")) target.scrollIntoView({ block: "nearest" });
      target.click();
    });
  }

  function shortcuts() {
    const found = all("[data-key]")
      .filter((it) => !it.hidden)
      .map((it) => [it.dataset.key, it.dataset.does]);
    if (one(".code")) {
      found.push(["j", "Next line"], ["k", "Previous line"], ["Shift + j", "Mark one line more"]);
    }
    if (one("form.create")) found.push(["Ctrl + Enter", "Save"]);
    return found;
  }

  function entry([key, does]) {
    const name = document.createElement("dt");
    const words = document.createElement("dd");
    const cap = document.createElement("kbd");
    cap.textContent = key;
    name.append(cap);
    words.textContent = does;
    return [name, words];
  }

  // ---- the create form -----------------------------------------------------------------------

  const size = (bytes) =>
    bytes < 1024 ? `${bytes} bytes` : `${(bytes / 1024).toFixed(1)} KiB`;

  function setUpForm() {
    const form = one("form.create");
    if (!form) return;
    const [text, file, save] = [one("#content"), one("#file"), one(".save button")];
    const limit = Number(text.dataset.limit);

    const problem = () => {
      if (file.files.length > 0 && text.value !== "") return "Save the text or the file, not both.";
      if (file.files.length > 0) {
        const over = file.files[0].size > limit;
        return over ? `This file has ${size(file.files[0].size)}, more than fits.` : "";
      }
      if (text.value === "") return "There is nothing to save yet.";
      // A character has at most three bytes per unit: short texts need no counting.
      if (text.value.length * 3 <= limit) return "";
      const bytes = new TextEncoder().encode(text.value).length;
      return bytes > limit ? `This text has ${size(bytes)}, more than fits.` : "";
    };
    // The same key is the same paste: after a lost answer, saving again makes no second one.
    const key = document.createElement("input");
    key.type = "hidden";
    key.name = "key";
    form.append(key);
    const anotherKey = () => {
      const bytes = crypto.getRandomValues(new Uint8Array(16));
      key.value = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    };
    anotherKey();
    form.addEventListener("input", () => {
      text.setCustomValidity("");
      anotherKey();
    });

    // Whoever wanted a list wants it the next time.
    const remember = one("#remember");
    if (stored.get("remember") === "on") remember.checked = true;
    remember.addEventListener("change", () => {
      stored.set("remember", remember.checked ? "on" : null);
    });

    form.addEventListener("submit", (event) => {
      const words = problem();
      text.setCustomValidity(words);
      if (words !== "") {
        event.preventDefault();
        text.reportValidity();
        say(words);
        return;
      }
      // A second click must not save a second paste.
      if (form.dataset.sent) event.preventDefault();
      form.dataset.sent = "1";
      save.textContent = "Saving…";
    });
    // Back from the paste, the form can be used again, for another one.
    addEventListener("pageshow", (event) => {
      if (event.persisted) anotherKey();
      delete form.dataset.sent;
      save.textContent = "Save";
    });

    text.addEventListener("dragover", (event) => {
      if (event.dataTransfer.types.includes("Files")) event.preventDefault();
    });
    text.addEventListener("drop", (event) => {
      if (event.dataTransfer.files.length === 0) return;
      event.preventDefault();
      file.files = event.dataTransfer.files;
      form.dispatchEvent(new Event("input"));
      say(`File ${file.files[0].name} will be saved`);
    });
  }

  // ---- waiting for the upload ----------------------------------------------------------------

  function setUpWaiting() {
    const panel = one("[data-wait]");
    if (!panel) return;
    let delay = 500;

    const later = () => {
      // Some spread, so that many waiting pages do not ask in step.
      setTimeout(look, delay * (0.8 + 0.4 * Math.random()));
      delay = Math.min(delay * 1.4, 5000);
    };
    async function look() {
      if (document.hidden) {
        document.addEventListener("visibilitychange", look, { once: true });
        return;
      }
      let ready = false;
      try {
        const signal = AbortSignal.timeout(10_000);
        const response = await fetch(panel.dataset.wait, {
          method: "HEAD",
          cache: "no-store",
          signal,
        });
        // Not ready, or too many questions: ask again later.
        ready = response.status !== 503 && response.status !== 429;
      } catch {
        // The network is away for a moment.
      }
      if (ready) arrived(panel);
      else later();
    }
    later();
  }

  // Whoever is busy with the link or the token above is not interrupted.
  function arrived(panel) {
    const above = one(".created");
    if (!above || !(above.contains(document.activeElement) || above.querySelector("[open]"))) {
      location.reload();
      return;
    }
    panel.querySelector("h1").textContent = "It is there";
    panel.querySelector("p").textContent = "This paste can be read now.";
    panel.querySelector(".pulse").remove();
    panel.querySelector(".hint a").textContent = "Show it";
    say("This paste can be read now.");
  }

  setUpTheme();
  setUpCopying();
  setUpWrap();
  setUpLines();
  setUpKeys();
  setUpForm();
  setUpWaiting();
})();
