// The scripts of the paste service. Every page works without them.
//
// The service sends these files as one; this one comes first.
"use strict";
const pastes = (() => {
  const one = (selector) => document.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];

  // The browser may forbid storage, or it may be full: then choices last as long as the page.
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
        // The choice is lost with the page.
      }
    },
  };

  // Announces a change to users of screen readers. Cleared first, so that the same text is read twice.
  function announce(text) {
    const region = one("#announcements");
    region.textContent = "";
    setTimeout(() => {
      region.textContent = text;
    }, 50);
  }

  // Shows a result on the button that was pressed, for 1.6 s, then its label again.
  function showResult(button, text) {
    announce(text);
    button.dataset.label ??= button.textContent;
    button.textContent = text;
    clearTimeout(button.resetting);
    button.resetting = setTimeout(() => {
      button.textContent = button.dataset.label;
    }, 1600);
  }

  return { one, all, stored, announce, showResult };
})();
