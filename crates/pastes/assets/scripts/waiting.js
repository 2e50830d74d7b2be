
// Waiting for a paste that is being stored.
(() => {
  const { one, say } = pastes;

  function setUpWaiting() {
    const panel = one("[data-wait]");
    if (!panel) return;
    let delay = 500;

    const later = () => {
      // Some spread, so that many waiting pages do not ask in step.
      setTimeout(look, delay * (0.8 + 0.4 * Math.random()));
      delay = Math.min(delay * 1.4, 5000);
    };
    async function look() {
      if (document.hidden) {
        document.addEventListener("visibilitychange", look, { once: true });
        return;
      }
      let ready = false;
      try {
        const signal = AbortSignal.timeout(10_000);
        const response = await fetch(panel.dataset.wait, {
          method: "HEAD",
          cache: "no-store",
          signal,
        });
        // Not ready, or too many questions: ask again later.
        ready = response.status !== 503 && response.status !== 429;
      } catch {
        // The network is away for a moment.
      }
      if (ready) arrived(panel);
      else later();
    }
    later();
  }

  // Whoever is busy with the link or the token above is not interrupted.
  function arrived(panel) {
    const above = one(".created");
    if (!above || !(above.contains(document.activeElement) || above.querySelector("[open]"))) {
      location.reload();
      return;
    }
    panel.querySelector("h1").textContent = "It is there";
    panel.querySelector("p").textContent = "This paste can be read now.";
    panel.querySelector(".pulse").remove();
    panel.querySelector(".hint a").textContent = "Show it";
    say("This paste can be read now.");
  }

  setUpWaiting();
})();
