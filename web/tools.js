// Shows the server's tools: which may run early, which wait, and why.

import { el } from './text.js';

const WHY = {
  allowed: 'It only reads, so it may run while you are still speaking.',
  off: 'Beginning early is switched off on this server.',
  ends_call: 'It ends the conversation.',
  confirmation: 'It asks you first.',
  effect: 'It may change something.',
  declaration: 'It is not set up to run early.',
  network: 'It would send unfinished words to another service.',
};

const HOW = { full: 'runs early', 'warm-up': 'connects early', forbid: 'waits' };

const EFFECTS = {
  read: 'reads',
  'read-costly': 'reads, at a cost',
  keyed: 'changes, safe to repeat',
  reversible: 'changes, can be undone',
  irreversible: 'changes for good',
};

/** A tool's eligibility and the reason. `on` is the session's speculation switch. */
function standing(tool, on) {
  return on ? [tool.eligibility, WHY[tool.because]] : ['forbid', 'Beginning early is switched off in this conversation.'];
}

/** A summary of the tools: "4 run early, 8 wait". */
export function toolsInShort(tools, on) {
  const early = tools.filter((tool) => standing(tool, on)[0] === 'full').length;
  const waiting = tools.length - early;
  return [`${early} ${early === 1 ? 'runs' : 'run'} early`, `${waiting} ${waiting === 1 ? 'waits' : 'wait'}`].join(', ');
}

/** Shows the tools in `place`, those that may run early first. */
export function showTools(place, tools, on) {
  const rank = ({ eligibility }) => ['full', 'warm-up', 'forbid'].indexOf(eligibility);
  place.replaceChildren(
    ...tools.toSorted((a, b) => rank(a) - rank(b)).map((tool) => {
      const [how, why] = standing(tool, on);
      return el(
        'li',
        { class: `tool ${how}` },
        el('div', { class: 'tool-head' }, el('code', {}, tool.name), el('span', { class: 'badge how' }, HOW[how]), el('span', { class: 'badge' }, EFFECTS[tool.effect] ?? tool.effect), ...(tool.demonstrates ? [el('span', { class: 'badge' }, 'demonstration')] : [])),
        el('p', {}, tool.description),
        el('p', { class: 'why' }, why),
      );
    }),
  );
}

/** A card that asks for confirmation. `answer` is called with true or false. `language`: the question's, a BCP 47 tag. */
export function confirmationCard({ name, arguments: values, question }, answer, language) {
  const facts = Object.entries(values ?? {}).flatMap(([key, value]) => [el('dt', {}, key), el('dd', {}, typeof value === 'string' ? value : JSON.stringify(value))]);
  return el(
    'section',
    { class: 'confirmation', 'aria-label': 'Confirmation' },
    el('h3', {}, 'May it do this?'),
    el('p', { lang: language }, question),
    el('dl', {}, el('dt', {}, 'tool'), el('dd', {}, name), ...facts),
    el('div', { class: 'buttons' }, el('button', { type: 'button', class: 'primary', onclick: () => answer(true) }, 'Yes, do it'), el('button', { type: 'button', onclick: () => answer(false) }, 'No')),
  );
}
