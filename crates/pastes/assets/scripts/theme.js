// Runs before anything is painted: a theme that was chosen earlier never flashes in the other one.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");
  try {
    const theme = localStorage.getItem("pastes.theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    if (localStorage.getItem("pastes.wrap") === "on") root.classList.add("wrap");
  } catch {
    // Storage can be forbidden; then the system decides.
  }
})();
