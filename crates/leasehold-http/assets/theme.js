// Runs before the browser paints: a page with a chosen theme never flashes in the other one.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");
  try {
    const theme = localStorage.getItem("SITE.theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch {
    // The browser may forbid storage; then the system's theme applies.
  }
})();
