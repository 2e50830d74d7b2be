
// The page of a paste whose upload is in progress.
(() => {
  const { one, announce } = pastes;

  function setUpWaiting() {
    const panel = one("[data-wait]");
    if (!panel) return;
    let delay = 500;

    const later = () => {
      // With jitter, so that many waiting pages do not poll at the same moment.
      setTimeout(poll, delay * (0.8 + 0.4 * Math.random()));
      delay = Math.min(delay * 1.4, 5000);
    };
    async function poll() {
      if (document.hidden) {
        document.addEventListener("visibilitychange", poll, { once: true });
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
        // Not uploaded yet, or too many requests: poll again later.
        ready = response.status !== 503 && response.status !== 429;
      } catch {
        // The network failed: poll again later.
      }
      if (ready) arrived(panel);
      else later();
    }
    later();
  }

  // A reload would interrupt a user who copies the link or the token above.
  function arrived(panel) {
    const above = one(".created");
    if (!above || !(above.contains(document.activeElement) || above.querySelector("[open]"))) {
      location.reload();
      return;
    }
    panel.querySelector("h1").textContent = "Ready";
    panel.querySelector("p").textContent = "This paste can be read now.";
    panel.querySelector(".pulse").remove();
    panel.querySelector(".hint a").textContent = "Show the paste";
    announce("This paste can be read now.");
  }

  setUpWaiting();
})();
