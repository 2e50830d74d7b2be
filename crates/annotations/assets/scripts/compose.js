
// Writing: a note about a passage or the page, a reply, an edit, a deletion.
(() => {
  const { one, all, say, ask, bodies, textIn, tagsOf, reader, url, selected, go, refresh, open } = notes;
  if (!reader) return;
  const bar = one("#bar");
  const form = one("#compose");
  let passage = null;

  // The bar comes with a selection in the text, and goes with it.
  document.addEventListener("selectionchange", () => {
    const now = selected();
    // Pressing the button may take the selection away; what was selected still counts then.
    if (now) passage = now;
    bar.hidden = now === null;
  });
  if (!form) return;

  // One note, however often it is sent: the same words with the same key. Other words get another one:
  // with a key that came before, the service would refuse them.
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
    alarm(form, "");
    open(true);
    form.scrollIntoView({ block: "nearest" });
    one("#compose-text").focus();
  }

  function end() {
    form.reset();
    form.hidden = true;
    selectors = null;
  }

  function alarm(where, words) {
    const place = one(".alert", where);
    place.textContent = words;
    place.hidden = words === "";
  }

  // Sends a form; it stays as it is when that fails.
  async function send(where, work) {
    const buttons = all("button", where);
    for (const button of buttons) button.disabled = true;
    alarm(where, "");
    try {
      await work();
    } catch (error) {
      alarm(where, error.message);
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
    // Not left in a field that nobody sees: keys would go there.
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
      // Filters that would hide the new note are dropped.
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
    const giveUp = document.createElement("button");
    Object.assign(giveUp, { type: "button", textContent: "Cancel" });
    giveUp.addEventListener("click", () => {
      small.remove();
      card.focus();
    });
    row.append(saving, giveUp);
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
      // What was changed in another window meanwhile is not written over.
      const { note, version } = card.dataset;
      let said = textOf(card);
      if (card.dataset.cut !== undefined) {
        // The page has the beginning of it only, and saving that would lose the rest.
        try {
          said = textIn(await ask("GET", `/api/annotations/${note}`));
        } catch (error) {
          return say(error.message);
        }
      }
      within(card, "Your note", said, tagsIn(card), async (text, tags) => {
        const seen = { "If-Match": `"${version}"` };
        return (await ask("PATCH", `/api/annotations/${note}`, { body: bodies(text, tags) }, seen)).key;
      });
    },
    // Asked twice: the second press, within a few seconds, does it.
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
