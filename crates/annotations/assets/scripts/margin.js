
// The margin: applies filters without loading the page again, and links passages with their notes.
Object.assign(notes, (() => {
  const { one, all, say, ask, textIn, reader, url, markAll } = notes;
  if (!reader) return { refresh: async () => {} };
  const margin = one("#margin");
  let latest = 0;

  const wanted = () => new URLSearchParams(location.search);

  const cardOf = (key) => one(`#margin [data-note="${CSS.escape(key)}"]`);

  // Returns a function that restores the focus after the margin was replaced: to the same control, to the chosen
  // filter, or to the note in the position of a deleted one.
  function focused() {
    const at = document.activeElement;
    if (!margin.contains(at)) return () => {};
    const { tab, add } = at.dataset;
    const key = at.closest("[data-note]")?.dataset.note;
    const row = all("#margin .card").findIndex((card) => card.dataset.note === key);
    return () => {
      if (document.activeElement !== document.body) return;
      const cards = all("#margin .card");
      const next =
        (tab && one(`#margin [data-tab="${tab}"]`)) ||
        (add && one(`#margin [data-drop="${add}"]`)) ||
        (key && (cardOf(key) ?? cards[Math.min(row, cards.length - 1)])) ||
        one("#margin .tabs [aria-current]");
      next?.focus({ preventScroll: true });
    };
  }

  // Fetches the notes for the filters in the address. Only the last request counts.
  async function refresh({ focus } = {}) {
    const mine = ++latest;
    const query = wanted();
    query.set("url", url);
    try {
      const response = await fetch(`/margin?${query}`, {
        headers: { Accept: "text/html" },
        signal: AbortSignal.timeout(20_000),
      });
      if (!response.ok) throw new Error();
      const words = await response.text();
      if (mine !== latest) return;
      const page = new DOMParser().parseFromString(words, "text/html");
      const back = focused();
      margin.replaceChildren(...page.body.childNodes);
      back();
    } catch {
      if (mine !== latest) return;
      say("The notes could not be loaded. The page shows the earlier ones.");
      return;
    }
    arrive();
    if (focus) show(focus);
  }

  function arrive() {
    markAll();
    const counts = all("#margin .tabs .count").map((it) => Number(it.textContent));
    one("#open .count").textContent = counts.reduce((sum, count) => sum + count, 0);
    one("#find [name=tab]").value = wanted().get("tab") ?? "annotations";
  }

  // Changes filters in the address, and shows the notes that match.
  function go(changes, focus) {
    const query = wanted();
    // Other filters start at the first page.
    query.delete("cursor");
    for (const [name, value] of Object.entries(changes)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    history.pushState(null, "", query.size > 0 ? `/?${query}` : "/");
    follow();
    return refresh({ focus });
  }

  // Sets the fields to the filters in the address.
  function follow() {
    const query = wanted();
    one("#q").value = query.get("q") ?? "";
    one("#group").value = query.get("group") ?? "";
  }

  // Shows the whole text of a note. If the request fails, opens the page of the note.
  async function lengthen(link) {
    const card = link.closest(".card");
    try {
      const note = await ask("GET", `/api/annotations/${card.dataset.note}`);
      one(".said", card).textContent = textIn(note);
      delete card.dataset.cut;
      link.closest(".more").remove();
      card.focus({ preventScroll: true });
    } catch {
      location.href = link.href;
    }
  }

  // Scrolls a note and its passage into view.
  function show(key, { text = false } = {}) {
    for (const element of all(".chosen")) element.classList.remove("chosen");
    const card = cardOf(key);
    const marks = all(`#body mark[data-note="${CSS.escape(key)}"]`);
    for (const element of [card, ...marks]) element?.classList.add("chosen");
    if (text) marks[0]?.scrollIntoView({ block: "center" });
    else card?.scrollIntoView({ block: "nearest" });
    if (!text) card?.focus({ preventScroll: true });
  }

  const narrow = matchMedia("(max-width: 60rem)");
  function open(yes) {
    reader.classList.toggle("notes-open", yes);
    one("#open").setAttribute("aria-expanded", String(yes));
  }

  margin.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    const link = event.target.closest("a[data-tab], a[data-add], a[data-drop], a[data-cursor]");
    if (link) {
      event.preventDefault();
      const { tab, add, value, drop, cursor } = link.dataset;
      if (cursor !== undefined) return void go({ cursor }).then(() => one("#notes").scrollTo(0, 0));
      return void go(tab ? { tab } : add ? { [add]: value } : { [drop]: "" });
    }
    const more = event.target.closest("a[data-more]");
    if (more) {
      event.preventDefault();
      return void lengthen(more);
    }
    if (event.target.closest("[data-show]")) {
      const key = event.target.closest("[data-note]").dataset.note;
      if (narrow.matches) open(false);
      show(key, { text: true });
    }
  });
  one("#body").addEventListener("click", (event) => {
    const passage = event.target.closest("mark");
    if (!passage || !getSelection().isCollapsed) return;
    open(true);
    show(passage.dataset.note);
  });
  one("#find").addEventListener("submit", (event) => {
    event.preventDefault();
    go({ q: one("#q").value.trim() });
  });
  one("#group").addEventListener("change", (event) => go({ group: event.target.value }));
  one("#open").hidden = false;
  one("#open").addEventListener("click", () => {
    open(true);
    one("#q").focus();
  });
  one("#close").addEventListener("click", () => {
    open(false);
    one("#open").focus();
  });
  addEventListener("popstate", () => {
    follow();
    refresh();
  });
  arrive();
  return { refresh, go, show, open, cardOf };
})());
