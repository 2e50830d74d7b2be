
// Copying and saving.
(() => {
  const { one, all, showResult } = pastes;

  const textOf = (element) =>
    element instanceof HTMLInputElement ? element.value : element.querySelector("code").textContent;

  // A text that is truncated on the page is fetched in full.
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
    // Over plain http on a host that is not localhost, browsers allow only execCommand.
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
          showResult(button, "Copied");
        } catch {
          showResult(button, "Could not copy");
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
        showResult(button, "Saved");
      });
    }
    for (const field of all(".copyable input")) {
      field.addEventListener("focus", () => field.select());
    }
  }

  setUpCopying();
})();
