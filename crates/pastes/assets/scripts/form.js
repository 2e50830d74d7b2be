
// The form that creates pastes.
(() => {
  const { one, stored, announce } = pastes;

  const size = (bytes) =>
    bytes < 1024 ? `${bytes} bytes` : `${(bytes / 1024).toFixed(1)} KiB`;

  function setUpForm() {
    const form = one("form.create");
    if (!form) return;
    const [text, file, save] = [one("#content"), one("#file"), one(".save button")];
    const limit = Number(text.dataset.limit);

    const problem = () => {
      if (file.files.length > 0 && text.value !== "") return "Save either the text or the file.";
      if (file.files.length > 0) {
        const over = file.files[0].size > limit;
        return over ? `This file has ${size(file.files[0].size)}; the limit is ${size(limit)}.` : "";
      }
      if (text.value === "") return "Type or paste a text first.";
      // A character has at most three bytes per unit: short texts need no counting.
      if (text.value.length * 3 <= limit) return "";
      const bytes = new TextEncoder().encode(text.value).length;
      return bytes > limit ? `This text has ${size(bytes)}; the limit is ${size(limit)}.` : "";
    };
    // The same key returns the same paste: after a lost response, saving again creates no second one.
    const key = document.createElement("input");
    key.type = "hidden";
    key.name = "key";
    form.append(key);
    const newKey = () => {
      const bytes = crypto.getRandomValues(new Uint8Array(16));
      key.value = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    };
    newKey();
    form.addEventListener("input", () => {
      text.setCustomValidity("");
      newKey();
    });

    // A user who listed a paste probably lists the next one.
    const remember = one("#remember");
    if (stored.get("remember") === "on") remember.checked = true;
    remember.addEventListener("change", () => {
      stored.set("remember", remember.checked ? "on" : null);
    });

    form.addEventListener("submit", (event) => {
      const message = problem();
      text.setCustomValidity(message);
      if (message !== "") {
        event.preventDefault();
        text.reportValidity();
        announce(message);
        return;
      }
      // A second click must not save a second paste.
      if (form.dataset.sent) event.preventDefault();
      form.dataset.sent = "1";
      save.textContent = "Saving…";
    });
    // A user who returns from the paste can fill in the form for another one.
    addEventListener("pageshow", (event) => {
      if (event.persisted) newKey();
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
      announce(`File ${file.files[0].name} will be saved`);
    });
  }

  setUpForm();
})();
