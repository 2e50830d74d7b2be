// Runs before anything is painted: a theme that was chosen earlier never flashes in the other one.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");
  try {
    const theme = localStorage.getItem("SITE.theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch {
    // Storage can be forbidden; then the system decides.
  }
})();
