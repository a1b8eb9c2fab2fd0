// Moves the focus on when the control that has it vanishes or is disabled. A browser leaves it nowhere then, and whoever
// uses a keyboard or a screen reader begins at the top of the page again.

const find = (id) => document.getElementById(id);

/** The controls to go on with, best first. The field comes last, because it opens the keyboard of a phone. */
const NEXT = ['talk', 'microphone', 'words'];

/** The controls that come before those, by the one that is lost. */
const BESIDE = { earlier: ['later'], later: ['earlier'] };

/** The element that has the focus, or had it until it could not any more. */
let focused = null;

/** The control that the focus was moved to. */
let given = null;

/** Whether an element can have the focus. */
const isUsable = (element) => element.isConnected && !element.disabled && element.closest('[hidden]') === null;

/** Whether nothing else has the focus. */
const isNowhere = () => [focused, document.body, null].includes(document.activeElement);

/** Keeps the focus on the page from now on. */
export function keepFocus() {
  // What is beside the page's content, for a moment, is the page's own.
  document.addEventListener('focusin', ({ target }) => target.closest('main') && (focused = target));
  // Whoever clicks beside all controls has left this one. If it has vanished, the focus is elsewhere by then.
  document.addEventListener('focusout', ({ target }) => {
    setTimeout(() => {
      if (focused === target && document.activeElement === document.body) focused = null;
    });
  });
  document.addEventListener('keydown', (event) => {
    // Held down, an Enter that was meant for the control before would click this one.
    if (event.key === 'Enter' && event.repeat && event.target === given) event.preventDefault();
  });
  new MutationObserver(goOn).observe(document.body, { subtree: true, childList: true, attributes: true, attributeFilter: ['hidden', 'disabled'] });
}

function goOn() {
  if (focused === null || isUsable(focused) || !isNowhere()) return;
  given = [...(BESIDE[focused.id] ?? []), ...NEXT].map(find).find(isUsable) ?? null;
  focused = null;
  given?.focus();
}
