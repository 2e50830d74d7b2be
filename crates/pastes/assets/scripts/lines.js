
// Lines: wrapping, marking and linking them.
(() => {
  const { one, all, stored, announce } = pastes;
  const root = document.documentElement;

  function setUpWrap() {
    const button = one("#wrap");
    if (!button) return;
    const show = () => button.setAttribute("aria-pressed", root.classList.contains("wrap"));
    button.addEventListener("click", () => {
      const on = root.classList.toggle("wrap");
      stored.set("wrap", on ? "on" : "off");
      show();
      announce(on ? "Long lines wrap" : "Long lines scroll");
    });
    show();
    button.hidden = false;
  }

  // #L10 or #L10-L20.
  function range() {
    const found = /^#L(\d+)(?:-L(\d+))?$/.exec(location.hash);
    if (!found) return null;
    const [from, to] = [Number(found[1]), Number(found[2] ?? found[1])];
    return { from: Math.min(from, to), to: Math.max(from, to) };
  }

  function markLines() {
    for (const line of all(".l.marked")) line.classList.remove("marked");
    const marked = range();
    if (!marked) return;
    for (let n = marked.from; n <= marked.to; n++) {
      const line = document.getElementById(`L${n}`);
      if (!line) break;
      line.classList.add("marked");
    }
    document.getElementById(`L${marked.from}`)?.scrollIntoView({ block: "nearest" });
  }

  function choose(from, to) {
    const name = from === to ? `#L${from}` : `#L${Math.min(from, to)}-L${Math.max(from, to)}`;
    history.replaceState(null, "", name);
    markLines();
  }

  // Moves the marked line, or with `extend` the end of the marked lines.
  function step(by, extend) {
    const count = all(".code .l").length;
    if (count === 0) return;
    const now = range();
    if (!now) {
      choose(1, 1);
    } else if (extend) {
      choose(now.from, Math.min(Math.max(now.to + by, now.from), count));
    } else {
      const line = Math.min(Math.max((by > 0 ? now.to : now.from) + by, 1), count);
      choose(line, line);
    }
    const { from, to } = range();
    document.getElementById(`L${to}`)?.scrollIntoView({ block: "nearest" });
    announce(from === to ? `Line ${from}` : `Lines ${from} to ${to}`);
  }

  function setUpLines() {
    const code = one(".code");
    if (!code) return;
    code.addEventListener("click", (event) => {
      const number = event.target.closest(".l > a");
      if (!number || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      const line = Number(number.parentElement.id.slice(1));
      const now = range();
      choose(event.shiftKey && now ? now.from : line, line);
    });
    addEventListener("hashchange", markLines);
    markLines();
  }

  pastes.step = step;
  setUpWrap();
  setUpLines();
})();
