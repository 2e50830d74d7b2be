// Comfort for the pages of the paste service. Every page works without scripts.
//
// These files are served as one; this one comes first.
"use strict";
const pastes = (() => {
  const one = (selector) => document.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];

  // Storage can be forbidden or full: then choices last as long as the page.
  const stored = {
    get(name) {
      try {
        return localStorage.getItem(`pastes.${name}`);
      } catch {
        return null;
      }
    },
    set(name, value) {
      try {
        if (value === null) localStorage.removeItem(`pastes.${name}`);
        else localStorage.setItem(`pastes.${name}`, value);
      } catch {
        // Nothing to do.
      }
    },
  };

  // Tells people who do not see the page change. The same words twice are still read twice.
  function say(words) {
    const place = one("#say");
    place.textContent = "";
    setTimeout(() => {
      place.textContent = words;
    }, 50);
  }

  // Shows a result on the button that was pressed, then its own words again.
  function answer(button, words) {
    say(words);
    button.dataset.words ??= button.textContent;
    button.textContent = words;
    clearTimeout(button.answering);
    button.answering = setTimeout(() => {
      button.textContent = button.dataset.words;
    }, 1600);
  }

  return { one, all, stored, say, answer };
})();
