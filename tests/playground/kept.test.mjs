// Tests what the page keeps where the browser forbids it to. Run by `node --test`.

import assert from 'node:assert/strict';
import test from 'node:test';
import { keep, recall } from '../../web/choices.js';
import { Kept } from '../../web/kept.js';
import { Session } from '../../web/session.js';

/** As browsers do where the visitor has blocked the site's data. */
for (const storage of ['localStorage', 'sessionStorage']) {
  Object.defineProperty(globalThis, storage, {
    configurable: true,
    get: () => {
      throw new DOMException('Access is denied for this document.', 'SecurityError');
    },
  });
}

test('a page that may keep nothing asks the server all the same, with the token of this visit', async () => {
  const asked = [];
  globalThis.fetch = async (path, { headers = {} } = {}) => {
    asked.push([path, headers.Authorization]);
    return headers.Authorization ? Response.json({ tools: [] }) : new Response('', { status: 401 });
  };
  const [session, states] = [new Session(), []];
  session.addEventListener('state', ({ detail }) => states.push(detail.state));
  assert.equal(await session.about(), null);
  session.unlock('a token');
  assert.deepEqual(await session.about(), { tools: [] });
  assert.deepEqual(states, ['locked', 'ready']);
  assert.deepEqual(asked, [['playground/about', undefined], ['playground/about', 'Bearer a token']]);
  // The comparison has a session of its own.
  assert.deepEqual(new Session().headers(), { Authorization: 'Bearer a token' });
});

test('a choice holds until the page is left, and an empty one is none', () => {
  assert.equal(recall('voice'), '');
  keep('voice', 'amy');
  assert.equal(recall('voice'), 'amy');
  keep('voice', '');
  assert.equal(recall('voice'), '');
});

test('what the browser keeps is found on the next visit', () => {
  const stored = new Map();
  const storage = { getItem: (key) => stored.get(key) ?? null, setItem: (key, text) => stored.set(key, text), removeItem: (key) => stored.delete(key) };
  new Kept(() => storage).keep('token', 'a token');
  assert.deepEqual([...stored], [['undertone.token', 'a token']]);
  const later = new Kept(() => storage);
  assert.equal(later.recall('token'), 'a token');
  later.keep('token', '');
  assert.equal(stored.size, 0);
});
