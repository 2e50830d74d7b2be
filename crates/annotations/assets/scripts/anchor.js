
// Passages: from a selection to selectors, and back to a range of the text.
//
// Positions count the characters of the text's element. They move when the text changes, so the quote and the
// text around it decide.
Object.assign(notes, (() => {
  const { one, all } = notes;
  const around = 32;
  const body = () => one("#body");

  function pieces() {
    const walker = document.createTreeWalker(body(), NodeFilter.SHOW_TEXT);
    const found = [];
    let at = 0;
    while (walker.nextNode()) {
      found.push({ node: walker.currentNode, start: at });
      at += walker.currentNode.data.length;
    }
    return found;
  }

  // Returns how many characters are before a position.
  function offset(node, inside) {
    const range = document.createRange();
    range.setStart(body(), 0);
    range.setEnd(node, inside);
    return range.toString().length;
  }

  // The selection, if it is in the text.
  function selected() {
    const selection = getSelection();
    if (!body() || selection.rangeCount === 0 || selection.isCollapsed) return null;
    const range = selection.getRangeAt(0);
    if (!body().contains(range.commonAncestorContainer)) return null;
    const text = body().textContent;
    let start = offset(range.startContainer, range.startOffset);
    let end = offset(range.endContainer, range.endOffset);
    while (start < end && /\s/.test(text[start])) start += 1;
    while (end > start && /\s/.test(text[end - 1])) end -= 1;
    if (start >= end || end - start > 4000) return null;
    return selectorsOf(text, start, end);
  }

  const selectorsOf = (text, start, end) => [
    {
      type: "TextQuoteSelector",
      exact: text.slice(start, end),
      prefix: text.slice(Math.max(0, start - around), start),
      suffix: text.slice(end, end + around),
    },
    { type: "TextPositionSelector", start, end },
  ];

  // Returns the range of selectors as [start, end], or null if the text no longer has the passage.
  function find(selectors) {
    const text = body().textContent;
    const quote = selectors.find((it) => it.type === "TextQuoteSelector");
    const position = selectors.find((it) => it.type === "TextPositionSelector");
    if (!quote) return null;
    const { exact, prefix = "", suffix = "" } = quote;
    if (position && text.slice(position.start, position.end) === exact) return [position.start, position.end];
    const whole = text.indexOf(prefix + exact + suffix);
    const start = whole >= 0 ? whole + prefix.length : text.indexOf(exact);
    return start >= 0 ? [start, start + exact.length] : null;
  }

  // Marks a passage, which may span several elements.
  function mark(key, [start, end]) {
    for (const piece of pieces()) {
      const from = Math.max(start, piece.start) - piece.start;
      const to = Math.min(end, piece.start + piece.node.data.length) - piece.start;
      if (from >= to) continue;
      const range = document.createRange();
      range.setStart(piece.node, from);
      range.setEnd(piece.node, to);
      const element = document.createElement("mark");
      element.dataset.note = key;
      range.surroundContents(element);
    }
  }

  function unmark() {
    for (const element of all("#body mark")) {
      const parent = element.parentNode;
      element.replaceWith(...element.childNodes);
      parent.normalize();
    }
  }

  // Marks the passages of the cards in the margin.
  function markAll() {
    unmark();
    for (const card of all("#margin .is-annotation")) {
      const range = find(JSON.parse(card.dataset.selectors));
      card.classList.toggle("lost", range === null);
      if (range) mark(card.dataset.note, range);
    }
  }

  return { selected, markAll };
})());
