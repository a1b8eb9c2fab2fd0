// Helpers for elements and for formatting.

/**
 * Creates an element. Children are elements or text; text is never parsed as markup.
 * @param {string} tag
 * @param {Record<string, unknown>} attributes `on…` are listeners; null and false are left out
 * @param {...(Node | string)} children
 */
export function el(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

/** Creates an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}

function furnish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false && value !== undefined) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children);
  return element;
}

/** A span: "430 ms", "1.52 s"; a dash if there is none. */
export function span(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return '–';
  const rounded = Math.round(ms);
  return Math.abs(rounded) < 1000 ? `${rounded} ms` : `${(ms / 1000).toFixed(2)} s`;
}

/** A span for use in a sentence: "0.3 s", "12 s". */
export function seconds(ms) {
  if (ms < 50) return 'less than 0.1 s';
  return ms < 9950 ? `${(Math.round(ms / 100) / 10).toFixed(1)} s` : `${Math.round(ms / 1000)} s`;
}

/** Arguments in readable form: `place: London, day: now`. */
export function listed(values) {
  const entries = Object.entries(values ?? {});
  return entries.map(([name, value]) => `${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`).join(', ');
}

/** `turn_ended` as "turn ended". */
export function plain(name) {
  return String(name ?? '').replaceAll('_', ' ').replaceAll('-', ' ');
}

/** Copies text to the clipboard; false if the browser does not let the page. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const from = document.activeElement;
    const area = el('textarea', { class: 'visually-hidden' });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    from?.focus();
    return done;
  }
}
