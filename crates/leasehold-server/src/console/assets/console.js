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

  // What tells one thing from another, also when all of them are new.
  const nameOf = (it) =>
    it.getAttribute("href") ?? it.getAttribute("aria-labelledby") ?? it.closest("[data-alarm]")?.dataset.alarm;

  // Where the focus is, and how to put it back when everything here is new: onto the same thing; if that
  // is gone, onto what stands around it.
  const focused = () => {
    const at = document.activeElement;
    if (!live.contains(at)) return () => {};
    const name = nameOf(at);
    return () => {
      const same = [...live.querySelectorAll("a, summary, .scroll")].find((it) => nameOf(it) === name);
      (same ?? live.closest("main")).focus({ preventScroll: true });
    };
  };

  // How far each table is scrolled, likewise.
  const scrolled = () => {
    const places = new Map([...live.querySelectorAll(".scroll")].map((box) => [nameOf(box), box.scrollLeft]));
    return () => live.querySelectorAll(".scroll").forEach((box) => (box.scrollLeft = places.get(nameOf(box)) ?? 0));
  };

  const ask = async () => {
    if (paused || document.hidden) return;
    if (busy()) return say("waiting", "waiting");
    try {
      const answer = await fetch(live.dataset.from, {
        headers: { accept: "text/html" },
        redirect: "error",
        signal: AbortSignal.timeout(LIMIT),
      });
      const text = await answer.text();
      if (paused || busy()) return;
      const fresh = new DOMParser().parseFromString(text, "text/html");
      const back = [focused(), scrolled()];
      live.replaceChildren(...fresh.body.childNodes);
      for (const put of back) put();
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
