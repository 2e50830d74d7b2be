// Keeps the page current: asks for its changing part every few seconds, as long as somebody looks.
"use strict";
(() => {
  const EVERY = 5000;
  const LIMIT = 10000;
  const root = document.documentElement;
  const live = document.querySelector("#live");
  const pulse = document.querySelector("#pulse");
  const theme = document.querySelector("#theme");

  if (theme) {
    const themes = ["auto", "light", "dark"];
    const now = () => root.dataset.theme ?? "auto";
    const show = () => {
      theme.querySelector(".visually-hidden").textContent = `Theme: ${now()}`;
      theme.title = `Theme: ${now()}`;
    };
    theme.addEventListener("click", () => {
      const next = themes[(themes.indexOf(now()) + 1) % themes.length];
      if (next === "auto") delete root.dataset.theme;
      else root.dataset.theme = next;
      try {
        if (next === "auto") localStorage.removeItem("leasehold.theme");
        else localStorage.setItem("leasehold.theme", next);
      } catch {
        // Then it holds for this page only.
      }
      show();
    });
    show();
    theme.hidden = false;
  }

  if (!live || !pulse) return;
  let paused = false;

  const say = (state, text) => {
    pulse.dataset.state = state;
    pulse.querySelector(".pulse-text").textContent = text;
    pulse.title = paused ? "Go on" : "Stop";
  };

  // What somebody is about to do must not vanish under the hand.
  const busy = () => live.querySelector("details[open]") !== null;

  const ask = async () => {
    if (paused || document.hidden) return;
    if (busy()) return say("waiting", "waiting for you");
    try {
      const answer = await fetch(live.dataset.from, {
        headers: { accept: "text/html" },
        redirect: "error",
        signal: AbortSignal.timeout(LIMIT),
      });
      const text = await answer.text();
      if (paused || busy()) return;
      const fresh = new DOMParser().parseFromString(text, "text/html");
      const scrolled = [...live.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
      live.replaceChildren(...fresh.body.childNodes);
      live.querySelectorAll(".scroll").forEach((box, place) => (box.scrollLeft = scrolled[place] ?? 0));
      say(answer.ok ? "live" : "lost", answer.ok ? "live" : "no database");
    } catch {
      say("lost", "reconnecting");
    }
  };

  pulse.addEventListener("click", () => {
    paused = !paused;
    say(paused ? "paused" : "live", paused ? "paused" : "live");
    if (!paused) ask();
  });
  document.addEventListener("visibilitychange", ask);
  say("live", "live");
  pulse.hidden = false;
  setInterval(ask, EVERY);
})();
