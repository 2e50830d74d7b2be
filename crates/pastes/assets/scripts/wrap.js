// Runs before anything is painted, too: long lines that were wrapped earlier never jump.
(() => {
  try {
    if (localStorage.getItem("pastes.wrap") === "on") document.documentElement.classList.add("wrap");
  } catch {
    // Storage can be forbidden; then lines are as long as they are.
  }
})();
