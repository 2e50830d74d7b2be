
// Copying and saving.
(() => {
  const { one, all, answer } = pastes;

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

  setUpCopying();
})();
