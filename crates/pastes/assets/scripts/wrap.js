// Runs before the browser paints, too: otherwise long lines would first scroll and then wrap.
(() => {
  try {
    // On a narrow screen most lines are too long, and nothing shows that they scroll.
    const narrow = matchMedia("(max-width: 40rem)").matches;
    const choice = localStorage.getItem("pastes.wrap") ?? (narrow ? "on" : "off");
    if (choice === "on") document.documentElement.classList.add("wrap");
  } catch {
    // The browser may forbid storage; then long lines scroll.
  }
})();
