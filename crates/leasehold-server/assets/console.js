// Refreshes the changing part of the page every few seconds while the page is visible.
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
        // Without storage the theme lasts until the page is left.
      }
      show();
    });
    show();
    theme.hidden = false;
  }

  if (!live || !pulse) return;
  let paused = false;

  const show = (state, text) => {
    pulse.dataset.state = state;
    pulse.querySelector(".pulse-text").textContent = text;
    pulse.title = paused ? "Resume refreshing" : "Pause refreshing";
  };

  // A refresh would close an open form and lose what the operator typed.
  const busy = () => live.querySelector("details[open]") !== null;

  // Identifies an element across refreshes, which replace all of them.
  const nameOf = (it) =>
    it.getAttribute("href") ?? it.getAttribute("aria-labelledby") ?? it.closest("[data-alarm]")?.dataset.alarm;

  // Remembers the focus. The returned function restores it after a refresh: to the same element, or to the
  // main part of the page if that element is gone.
  const focused = () => {
    const at = document.activeElement;
    if (!live.contains(at)) return () => {};
    const name = nameOf(at);
    return () => {
      const same = [...live.querySelectorAll("a, summary, .scroll")].find((it) => nameOf(it) === name);
      (same ?? live.closest("main")).focus({ preventScroll: true });
    };
  };

  // Remembers how far each table is scrolled, likewise.
  const scrolled = () => {
    const places = new Map([...live.querySelectorAll(".scroll")].map((box) => [nameOf(box), box.scrollLeft]));
    return () => live.querySelectorAll(".scroll").forEach((box) => (box.scrollLeft = places.get(nameOf(box)) ?? 0));
  };

  const ask = async () => {
    if (paused || document.hidden) return;
    if (busy()) return show("waiting", "waiting");
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
      show(answer.ok ? "live" : "lost", answer.ok ? "live" : "no database");
    } catch {
      show("lost", "reconnecting");
    }
  };

  pulse.addEventListener("click", () => {
    paused = !paused;
    show(paused ? "paused" : "live", paused ? "paused" : "live");
    if (!paused) ask();
  });
  document.addEventListener("visibilitychange", ask);
  show("live", "live");
  pulse.hidden = false;
  setInterval(ask, EVERY);
})();
