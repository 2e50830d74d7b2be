
// The theme: that of the system, light, or dark.
(() => {
  const { one, stored, announce } = pastes;
  const root = document.documentElement;

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
      announce(`Theme: ${next}`);
    });
    show();
    button.hidden = false;
  }

  setUpTheme();
})();
