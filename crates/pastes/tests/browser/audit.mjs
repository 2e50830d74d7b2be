// What must be true on every page. `audit` runs inside the page and returns one sentence per defect: an
// empty list for a good page, and null for one that has not loaded yet.

export function audit() {
  if (document.readyState !== "complete") return null;
  const wrong = [];
  const name = (element) => {
    const id = element.id ? `#${element.id}` : "";
    const classes = [...element.classList].map((it) => `.${it}`).join("");
    return `<${element.localName}${id}${classes}> "${element.textContent.trim().slice(0, 30)}"`;
  };
  const shown = (element) =>
    element.checkVisibility({ visibilityProperty: true, opacityProperty: true }) &&
    !element.closest(".visually-hidden, .skip, dialog:not([open])");

  // ---- colours -------------------------------------------------------------------------------
  const parse = (color) => {
    const [r, g, b, a = 1] = color.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, below) => {
    const mix = (one, other) => one * top.a + other * (1 - top.a);
    return { r: mix(top.r, below.r), g: mix(top.g, below.g), b: mix(top.b, below.b), a: 1 };
  };
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.a > 0) layers.push(color);
      if (color.a === 1) break;
    }
    return layers.reduceRight((below, top) => over(top, below), { r: 255, g: 255, b: 255, a: 1 });
  };
  const luminance = ({ r, g, b }) => {
    const linear = (value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    };
    return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  };
  const ratio = (one, other) => {
    const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };
  const readable = (element, style, what) => {
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const below = ground(element);
    const found = ratio(over(parse(style.color), below), below);
    if (found < (large ? 3 : 4.5)) wrong.push(`${what} has contrast ${found.toFixed(2)}`);
  };

  const seen = new Set();
  const once = (element, style, what) => {
    const key = [style.color, style.fontSize, style.fontWeight, JSON.stringify(ground(element))];
    if (seen.has(key.join())) return;
    seen.add(key.join());
    readable(element, style, what);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (walker.currentNode.data.trim() === "" || !shown(element)) continue;
    texts += 1;
    once(element, getComputedStyle(element), `text ${name(element)}`);
  }
  if (texts < 5) wrong.push(`only ${texts} texts were found: did the page load?`);
  for (const element of document.querySelectorAll("body *")) {
    if (!shown(element)) continue;
    const before = getComputedStyle(element, "::before");
    if (!["none", "normal", '""'].includes(before.content)) {
      once(element, before, `::before of ${name(element)}`);
    }
    if (element.matches("input[type=text], textarea") && element.placeholder) {
      readable(element, getComputedStyle(element, "::placeholder"), `placeholder ${name(element)}`);
    }
    if (element.matches("main input[type=text], main select, main button, main .button")) {
      const style = getComputedStyle(element);
      const edge = parse(style.borderTopColor);
      const around = ground(element.parentElement);
      const visible = Math.max(ratio(over(edge, around), around), ratio(ground(element), around));
      if (visible < 3) wrong.push(`the edge of ${name(element)} has ${visible.toFixed(2)}`);
    }
  }

  // ---- structure -----------------------------------------------------------------------------
  if (document.documentElement.lang !== "en") wrong.push("the page does not declare its language");
  if (!document.title) wrong.push("the page has no title");
  for (const mark of ["main", "body > header", "nav", "body > footer"]) {
    if (document.querySelectorAll(mark).length !== 1) wrong.push(`not one ${mark}`);
  }
  let level = 0;
  for (const heading of document.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    if (heading.closest("dialog")) continue;
    const own = Number(heading.localName[1]);
    if (own > level + 1) wrong.push(`${name(heading)} comes after a heading of level ${level}`);
    level = own;
  }
  if (document.querySelectorAll("h1").length !== 1) wrong.push("not one h1");
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  if (new Set(ids).size !== ids.length) wrong.push("an id is used twice");

  // ---- labels --------------------------------------------------------------------------------
  const named = (element) => {
    const by = element.getAttribute("aria-labelledby");
    const label = by
      ? document.getElementById(by)?.textContent
      : (element.getAttribute("aria-label") ?? element.labels?.[0]?.textContent);
    return (label ?? element.textContent ?? "").trim() !== "";
  };
  for (const field of document.querySelectorAll("input:not([type=hidden]), select, textarea")) {
    if (!(field.labels?.length > 0)) wrong.push(`${name(field)} has no label`);
    const described = field.getAttribute("aria-describedby") ?? "";
    for (const id of described.split(" ").filter(Boolean)) {
      if (!document.getElementById(id)) wrong.push(`the description of ${name(field)} is missing`);
    }
  }
  for (const element of document.querySelectorAll("a[href], button, summary, [role=region]")) {
    const isNumber = element.matches(".l > a");
    if (!isNumber && !named(element)) wrong.push(`${name(element)} has no name`);
  }
  for (const image of document.querySelectorAll("img")) {
    if (!image.alt) wrong.push("an image without alternative text");
  }
  for (const element of document.querySelectorAll("[onclick], [onload], [onerror], [style], style")) {
    wrong.push(`${name(element)} has something inline`);
  }

  // ---- sizes ---------------------------------------------------------------------------------
  const page = document.scrollingElement;
  if (page.scrollWidth > innerWidth) {
    const wide = [...document.querySelectorAll("main *, header *, footer *")].filter(
      (it) => it.getBoundingClientRect().right > innerWidth && !it.closest("pre, textarea"),
    );
    wrong.push(`the page is ${page.scrollWidth} wide: ${wide.slice(0, 3).map(name).join(", ")}`);
  }
  for (const element of document.querySelectorAll("nav a, button, .button, summary, select")) {
    if (!shown(element)) continue;
    const box = element.getBoundingClientRect();
    if (box.width < 24 || box.height < 23.5) {
      wrong.push(`${name(element)} is only ${box.width.toFixed(0)} × ${box.height.toFixed(0)}`);
    }
  }
  return wrong;
}
