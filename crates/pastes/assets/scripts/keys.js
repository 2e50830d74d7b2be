
// Keyboard shortcuts, and the dialog that lists them.
(() => {
  const { one, all, stored, step } = pastes;

  const typing = (target) =>
    target instanceof Element &&
    target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]") !== null;

  function setUpKeys() {
    const dialog = one("#help");
    const singleKeys = one("#single-keys");
    singleKeys.checked = stored.get("keys") !== "off";
    singleKeys.addEventListener("change", () => stored.set("keys", singleKeys.checked ? null : "off"));

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
      if (!singleKeys.checked || dialog.open || typing(event.target)) return;
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
    const action = document.createElement("dd");
    const cap = document.createElement("kbd");
    cap.textContent = key;
    name.append(cap);
    action.textContent = does;
    return [name, action];
  }

  setUpKeys();
})();
