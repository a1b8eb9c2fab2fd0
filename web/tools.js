// The server's tools: what they do to the world, and why they may run early or not.

import { el, plain } from './text.js';

const WHY = {
  allowed: 'It only reads, and its declaration allows it.',
  off: 'Running early is switched off on this server.',
  ends_call: 'It ends the conversation.',
  confirmation: 'You have to say yes first.',
  effect: 'It may change something.',
  declaration: 'Its declaration does not allow it.',
  network: 'It would send unfinished words to another machine.',
};

const HOW = { full: 'runs early', 'warm-up': 'connects early', forbid: 'waits for the commit' };

/** Shows the tools in `place`. `on` is the switch of this session. */
export function showTools(place, tools, on) {
  place.replaceChildren(
    ...tools.map((tool) => {
      const [how, why] = on ? [tool.eligibility, WHY[tool.because]] : ['forbid', 'Running early is switched off for this conversation.'];
      return el(
        'li',
        { class: `tool ${how}` },
        el('div', { class: 'tool-head' }, el('code', {}, tool.name), el('span', { class: 'badge effect' }, plain(tool.effect)), el('span', { class: 'badge how' }, HOW[how])),
        el('p', {}, tool.description),
        el('p', { class: 'why' }, why),
      );
    }),
  );
}

/** A card that asks for the user's yes. `answer` is called with true or false. */
export function confirmationCard({ name, arguments: values, question }, answer) {
  const facts = Object.entries(values ?? {}).flatMap(([key, value]) => [el('dt', {}, key), el('dd', {}, typeof value === 'string' ? value : JSON.stringify(value))]);
  return el(
    'section',
    { class: 'confirmation', 'aria-label': 'Confirmation' },
    el('h3', {}, 'May it do this?'),
    el('p', {}, question),
    el('dl', {}, el('dt', {}, 'tool'), el('dd', {}, name), ...facts),
    el('div', { class: 'buttons' }, el('button', { type: 'button', class: 'primary', onclick: () => answer(true) }, 'Yes, do it'), el('button', { type: 'button', onclick: () => answer(false) }, 'No')),
  );
}
