
// Writing: a note about a passage or the page, a reply, an edit, a deletion.
(() => {
  const { one, all, say, ask, bodies, textIn, tagsOf, reader, url, selected, go, refresh, open } = notes;
  if (!reader) return;
  const bar = one("#bar");
  const form = one("#compose");
  let passage = null;

  // The bar is visible while a passage of the text is selected.
  document.addEventListener("selectionchange", () => {
    const now = selected();
    // Pressing the button may end the selection; the passage stays chosen.
    if (now) passage = now;
    bar.hidden = now === null;
  });
  if (!form) return;

  // A repeated request has the same key, so that it makes one note. A changed text gets a new key: the service
  // would refuse it with the old one.
  const freshKey = () => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
  let key = freshKey();
  let selectors = null;

  function begin(about) {
    selectors = about;
    key = freshKey();
    const quote = one("#compose-quote");
    quote.hidden = about === null;
    quote.textContent = about?.[0].exact ?? "";
    form.hidden = false;
    showError(form, "");
    open(true);
    form.scrollIntoView({ block: "nearest" });
    one("#compose-text").focus();
  }

  function end() {
    form.reset();
    form.hidden = true;
    selectors = null;
  }

  function showError(where, words) {
    const alert = one(".alert", where);
    alert.textContent = words;
    alert.hidden = words === "";
  }

  // Sends a form, which keeps its content if that fails.
  async function send(where, work) {
    const buttons = all("button", where);
    for (const button of buttons) button.disabled = true;
    showError(where, "");
    try {
      await work();
    } catch (error) {
      showError(where, error.message);
    } finally {
      for (const button of buttons) button.disabled = false;
    }
  }

  one("#annotate").addEventListener("mousedown", (event) => event.preventDefault());
  one("#annotate").addEventListener("click", () => {
    if (passage) begin(passage);
    bar.hidden = true;
    getSelection().removeAllRanges();
  });
  one("#page-note").hidden = false;
  one("#page-note").addEventListener("click", () => begin(null));
  one("[data-cancel]", form).addEventListener("click", () => {
    end();
    // A hidden field must not keep the focus: it would take the keyboard shortcuts.
    one("#page-note").focus();
  });
  form.addEventListener("input", () => {
    key = freshKey();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form, async () => {
      const target = { source: url, title: document.title.replace(/ · notes$/, "") };
      if (selectors) target.selector = selectors;
      const body = bodies(one("#compose-text").value.trim(), tagsOf(one("#compose-tags").value));
      const group = one("#compose-group").value;
      const made = await ask("POST", "/api/annotations", { target, body, group }, { "Idempotency-Key": key });
      const tab = selectors ? "annotations" : "notes";
      end();
      say("Saved.");
      // Drop filters that would hide the new note.
      await go({ tab, q: "", user: "", tag: "", group: "" }, made.key);
    });
  });

  // A small form in a card, for a reply or an edit.
  function within(card, words, text, tags, save) {
    for (const old of all("form.within")) old.remove();
    const small = document.createElement("form");
    small.className = "within";
    const label = document.createElement("label");
    label.className = "visually-hidden";
    label.textContent = words;
    label.htmlFor = "within-text";
    const area = document.createElement("textarea");
    Object.assign(area, { id: "within-text", rows: 3, maxLength: 65536, value: text });
    small.append(label, area);
    let field = null;
    if (tags !== null) {
      const tagLabel = label.cloneNode();
      tagLabel.textContent = "Tags, with commas between them";
      tagLabel.htmlFor = "within-tags";
      field = document.createElement("input");
      Object.assign(field, { id: "within-tags", type: "text", value: tags, placeholder: "Tags, with commas" });
      small.append(tagLabel, field);
    }
    const row = document.createElement("div");
    row.className = "row";
    const saving = document.createElement("button");
    Object.assign(saving, { type: "submit", className: "primary", textContent: "Save" });
    const cancel = document.createElement("button");
    Object.assign(cancel, { type: "button", textContent: "Cancel" });
    cancel.addEventListener("click", () => {
      small.remove();
      card.focus();
    });
    row.append(saving, cancel);
    const wrong = document.createElement("p");
    wrong.className = "alert";
    wrong.setAttribute("role", "alert");
    wrong.hidden = true;
    small.append(row, wrong);
    let own = freshKey();
    small.addEventListener("input", () => {
      own = freshKey();
    });
    small.addEventListener("submit", (event) => {
      event.preventDefault();
      send(small, async () => {
        const focus = await save(area.value.trim(), field ? tagsOf(field.value) : [], own);
        small.remove();
        say("Saved.");
        await refresh({ focus });
      });
    });
    card.append(small);
    area.focus();
  }

  const textOf = (card) => one(".said", card)?.textContent ?? "";
  const tagsIn = (card) => all(".tags a", card).map((it) => it.textContent).join(", ");

  const does = {
    reply(card) {
      within(card, "Your reply", "", null, async (text, _, own) => {
        const reply = { replyTo: card.dataset.note, body: [{ type: "TextualBody", value: text, purpose: "replying" }] };
        return (await ask("POST", "/api/annotations", reply, { "Idempotency-Key": own })).key;
      });
    },
    async edit(card) {
      // If-Match keeps this from overwriting a change in another window.
      const { note, version } = card.dataset;
      let before = textOf(card);
      if (card.dataset.cut !== undefined) {
        // The page has only the beginning of the text; saving that would lose the rest.
        try {
          before = textIn(await ask("GET", `/api/annotations/${note}`));
        } catch (error) {
          return say(error.message);
        }
      }
      within(card, "Your note", before, tagsIn(card), async (text, tags) => {
        const seen = { "If-Match": `"${version}"` };
        return (await ask("PATCH", `/api/annotations/${note}`, { body: bodies(text, tags) }, seen)).key;
      });
    },
    // A second press within six seconds confirms.
    async delete(card, button) {
      if (button.dataset.sure === undefined) {
        button.dataset.sure = "";
        button.textContent = "Really delete?";
        say("Press again to delete.");
        setTimeout(() => {
          delete button.dataset.sure;
          button.textContent = "Delete";
        }, 6000);
        return;
      }
      try {
        await ask("DELETE", `/api/annotations/${card.dataset.note}`);
        say("Deleted.");
        await refresh();
      } catch (error) {
        say(error.message);
        button.textContent = error.message;
      }
    },
  };
  one("#margin").addEventListener("click", (event) => {
    const button = event.target.closest("[data-do]");
    if (button) does[button.dataset.do](button.closest(".card"), button);
  });
})();
