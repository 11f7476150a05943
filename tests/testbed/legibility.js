// What a person could not read on a page: elements beyond its right edge, and texts with less
// contrast than WCAG 2 asks of small text. Evaluated in the page; gives lines.
(() => {
  const found = [];
  const numbers = (colour) => {
    const parts = colour.match(/[\d.]+/g).map(Number);
    return parts.length === 3 ? [...parts, 1] : parts;
  };
  const over = (top, below) =>
    [0, 1, 2].map((place) => top[place] * top[3] + below[place] * (1 - top[3])).concat(1);
  const luminance = (colour) => {
    const [red, green, blue] = colour.slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const canvas = () => {
    const probe = document.createElement("div");
    probe.style.backgroundColor = "Canvas";
    document.body.append(probe);
    const colour = numbers(getComputedStyle(probe).backgroundColor);
    probe.remove();
    return colour;
  };
  const base = canvas();
  const background = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) {
      const layer = numbers(getComputedStyle(one).backgroundColor);
      layers.unshift(layer);
      if (layer[3] === 1) break;
    }
    return layers.reduce((below, layer) => over(layer, below), base);
  };
  const contrast = (colour, below) => {
    const [light, dark] = [luminance(over(colour, below)), luminance(below)].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };
  const check = (element, style, text, opacity) => {
    const colour = numbers(style.color);
    colour[3] *= opacity;
    const ratio = contrast(colour, background(element));
    if (ratio < 4.5) found.push(`contrast ${ratio.toFixed(2)}: ${element.tagName} ${text}`);
  };
  for (const one of document.querySelectorAll("details")) one.open = true;
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) found.push("the page scrolls sideways");
  for (const element of document.querySelectorAll("body *")) {
    const box = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    if (!box.width || !box.height || style.visibility === "hidden") continue;
    const own = [...element.childNodes].filter((one) => one.nodeType === Node.TEXT_NODE);
    const typed = element.matches("input, select, textarea") ? element.value : "";
    const text = (own.map((one) => one.data).join("").trim() || typed).slice(0, 40);
    if (box.right > width + 0.5 && !element.closest(".wide > *")) {
      found.push(`beyond the edge: ${element.tagName} ${text}`);
    }
    if (element.scrollWidth > element.clientWidth + 1 && style.overflowX === "hidden") {
      found.push(`cut: ${element.tagName} ${text}`);
    }
    if (element.placeholder && !element.value) {
      const shown = getComputedStyle(element, "::placeholder");
      check(element, shown, element.placeholder, Number(shown.opacity));
    } else if (text && box.right > 0) {
      check(element, style, text, Number(style.opacity));
    }
  }
  return [...new Set(found)];
})()
