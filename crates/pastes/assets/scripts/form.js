
// The form that makes pastes.
(() => {
  const { one, stored, say } = pastes;

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

  setUpForm();
})();
