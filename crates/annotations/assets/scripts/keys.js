
// Keys, and the list of them.
(() => {
  const { one, all, show, open } = notes;
  const dialog = one("#help");
  const button = one("#keys");
  button.hidden = false;
  button.title = "Keyboard shortcuts";
  const typing = (target) =>
    target instanceof Element && target.closest("input, textarea, select, [contenteditable]") !== null;

  function entry([key, does]) {
    const name = document.createElement("dt");
    const words = document.createElement("dd");
    const cap = document.createElement("kbd");
    cap.textContent = key;
    name.append(cap);
    words.textContent = does;
    return [name, words];
  }

  button.addEventListener("click", () => {
    const found = all("[data-key]").map((it) => [it.dataset.key, it.dataset.does]);
    if (one("main.reader")) found.push(["j", "Next note"], ["k", "Previous note"], ["Ctrl + Enter", "Save"]);
    one("#help-list").replaceChildren(...found.flatMap(entry));
    dialog.showModal();
  });

  function step(by) {
    const cards = all("#margin .card");
    const now = cards.findIndex((card) => card.classList.contains("chosen"));
    const next = cards[now < 0 ? (by > 0 ? 0 : cards.length - 1) : now + by];
    if (next) show(next.dataset.note);
  }

  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.target.closest?.("form")?.requestSubmit();
      return;
    }
    if (event.key === "Escape" && !dialog.open) {
      const cancel = event.target.closest?.("form")?.querySelector("[data-cancel], button[type=button]");
      if (cancel) cancel.click();
      else open?.(false);
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || dialog.open) return;
    if (typing(event.target)) return;
    if (one("main.reader") && event.key === "j") return step(1);
    if (one("main.reader") && event.key === "k") return step(-1);
    const target = all("[data-key]").find((it) => it.dataset.key === event.key && it.checkVisibility());
    if (!target) return;
    event.preventDefault();
    if (target.matches("input")) target.focus();
    else target.click();
  });
})();
