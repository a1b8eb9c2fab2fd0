// The page: what each part tells the others.

import { devices, Microphone, obstacle } from './audio-in.js';
import { Speaker } from './audio-out.js';
import { Demo } from './demo.js';
import { Recording, save } from './download.js';
import { showMetrics } from './metrics.js';
import { Session } from './session.js';
import { el, listed, span } from './text.js';
import { Timeline } from './timeline.js';
import { confirmationCard, showTools } from './tools.js';
import { Transcript } from './transcript.js';
import { plainTurn, Turns } from './turns.js';

/** How often a turn that goes on is drawn, ms. */
const DRAW_EVERY = 120;

/** A level that fills the meter. */
const LOUD = 0.25;

const find = (id) => document.getElementById(id);
const session = new Session();
const speaker = new Speaker();
const demo = new Demo(session, speaker);
const turns = new Turns();
const recording = new Recording();
const transcript = new Transcript(find('log'), find('partial'));
const timeline = new Timeline(find('drawing'), find('detail'), find('numbers'));

const view = { turn: null, timer: 0 };
const voice = { microphone: null, muted: false, held: false, opening: false };
const talk = { open: false, waiting: [], pieces: new Map() };
let tools = [];

// ---------------------------------------------------------------- what the server tells

session.addEventListener('message', ({ detail: { event, arrived } }) => {
  recording.line(turns.at(arrived) ?? 0, withoutAudio(event));
  if (event.type === 'response.output_audio.delta') return hear(event);
  const turn = turns.take(event, arrived);
  REACTIONS[event.type]?.(event, turn, arrived);
});

const REACTIONS = {
  'session.created': () => find('early').checked || switchSpeculation(),
  'input_audio_buffer.speech_started': () => {
    speaker.wake();
    status('listening');
  },
  'input_audio_buffer.speech_stopped': () => status('thinking'),
  'undertone.transcript.partial': ({ text }) => transcript.hearing(text),
  'undertone.utterance_dropped': () => {
    transcript.hearing('');
    status('open');
  },
  'conversation.item.done': ({ item }) => {
    const [content] = item.content ?? [];
    if (item.role === 'user' && content?.type === 'input_text') transcript.user(content.text);
  },
  'conversation.item.input_audio_transcription.completed': ({ transcript: text }) => {
    demo.understood();
    transcript.user(text);
  },
  'conversation.item.input_audio_transcription.failed': () => transcript.note('No words were recognised.'),
  'response.created': () => {
    talk.open = true;
    speaker.wake();
    status('thinking');
  },
  'response.output_audio_transcript.delta': ({ item_id: item }, turn) => {
    const clause = turn?.clauses.at(-1);
    if (clause) transcript.clause(item, clause.id, clause.text);
  },
  'response.output_audio_transcript.done': ({ item_id: item, transcript: heard }) => transcript.cut(item, heard),
  'conversation.item.truncated': ({ item_id: item }) => session.send({ type: 'conversation.item.retrieve', item_id: item }),
  'conversation.item.retrieved': ({ item }) => {
    if (item.role === 'assistant') transcript.cut(item.id, item.content[0]?.transcript ?? '');
  },
  'response.done': () => {
    talk.open = false;
    talk.waiting.splice(0).forEach(say);
    if (!speaker.playing) status('open');
  },
  'undertone.turn_record': (event) => event.runs.forEach(noteRun),
  'undertone.clear': () => speaker.flush(),
  'undertone.confirmation.asked': askConfirmation,
  'undertone.confirmation.ended': ({ outcome }) => {
    find('confirmations').replaceChildren();
    transcript.note(`Confirmation ${outcome}.`);
  },
  'undertone.stage_failed': ({ stage }) => transcript.note(`A stage failed: ${stage}. The conversation goes on.`),
  error: ({ error }) => {
    // A sound may end in the moment in which it is cut: then there is nothing left to be cut.
    if (error.code !== 'response_cancel_not_active' && error.param !== 'audio_end_ms') transcript.note(error.message);
  },
};

/** An event as it is written down: the sound goes to the other file. */
function withoutAudio(event) {
  if (event.type !== 'response.output_audio.delta') return event;
  const { delta, ...rest } = event;
  return { ...rest, audio_ms: Math.round((delta.length * 3) / 4 / 48) };
}

function hear({ item_id: item, delta }) {
  const bytes = Uint8Array.from(atob(delta), (letter) => letter.charCodeAt(0));
  const samples = new Int16Array(bytes.buffer);
  const id = turns.audio(item, samples.length);
  if (id === null) return;
  if (!talk.pieces.has(id)) talk.pieces.set(id, []);
  talk.pieces.get(id).push(samples);
  speaker.play(id, samples);
}

function noteRun(run) {
  if (run.fate.kind !== 'committed') return;
  const early = run.source !== null ? `, ran early, ${span(run.saved / 1000)} saved` : '';
  const values = listed(run.arguments);
  transcript.note(`${run.tool}${values ? ` (${values})` : ''}${early}`);
}

// ---------------------------------------------------------------- what is heard

for (const type of ['started', 'ended', 'flushed']) {
  speaker.addEventListener(type, ({ detail }) => {
    const found = turns.heard(type, detail);
    if (!found) return;
    transcript.sounding(detail.id, type === 'started');
    if (type === 'started') {
      status('speaking');
      talk.from = { id: detail.id, samples: detail.samples, at: detail.at };
    } else {
      keepSound(detail);
      if (!talk.open) status('open');
    }
    recording.line(turns.at(detail.at) ?? 0, { type: `page.${type}`, text: found.clause.text, heard_ms: detail.samples / 24 });
  });
}

/** Writes down what has sounded since the piece began. */
function keepSound({ id, samples }) {
  if (talk.from?.id !== id) return;
  const all = (talk.pieces.get(id) ?? []).flatMap((part) => [...part]);
  recording.sound('agent', talk.from.at, Int16Array.from(all.slice(talk.from.samples, samples)));
  talk.from = null;
}

speaker.addEventListener('silent', ({ detail }) => {
  turns.silenced(detail.at);
  const turn = turns.list.findLast((turn) => turn.clauses.length > 0);
  const item = turn?.clauses.at(-1)?.item;
  if (item === undefined) return;
  const clauses = turn.clauses.filter((clause) => clause.item === item);
  const total = (name) => clauses.reduce((sum, clause) => sum + clause[name], 0);
  if (total('heard') >= total('samples')) return;
  session.send({ type: 'conversation.item.truncate', item_id: item, content_index: 0, audio_end_ms: Math.floor(total('heard') / 24) });
});

// ---------------------------------------------------------------- what the user says

find('composer').addEventListener('submit', async (event) => {
  event.preventDefault();
  const text = find('words').value.trim();
  if (text === '') return;
  find('words').value = '';
  demo.stop();
  speaker.wake();
  await opened(() => {
    if (talk.open) {
      talk.waiting.push(text);
      hush();
    } else {
      say(text);
    }
  });
});

function say(text) {
  turns.typed(performance.now());
  session.send({ type: 'conversation.item.create', item: { type: 'message', role: 'user', content: [{ type: 'input_text', text }] } });
  session.send({ type: 'response.create' });
}

/** Has the agent fall silent. */
function hush() {
  speaker.flush();
  if (talk.open) session.send({ type: 'output_audio_buffer.clear' });
}

/** Does something once a conversation is open. */
async function opened(act) {
  try {
    await session.open();
    await act();
  } catch (error) {
    if (session.state === 'open') complain(error.message);
  }
}

function onFrame(samples, level) {
  find('level').value = voice.muted ? 0 : Math.min(1, level / LOUD);
  const silent = voice.muted || demo.playing || (find('push').checked && !voice.held);
  if (silent || !session.audio(samples)) return;
  recording.sound('user', performance.now() - 20, samples);
}

async function switchMicrophone() {
  if (voice.opening) return;
  if (voice.microphone) return endMicrophone();
  voice.opening = true;
  try {
    complain('');
    const [microphone] = await Promise.all([
      Microphone.open({ device: find('device').value, onFrame, onEnd: () => endMicrophone('The microphone was unplugged.') }),
      speaker.wake(),
    ]);
    voice.microphone = microphone;
    await listDevices();
    await opened(() => {});
  } catch (error) {
    complain(error.message);
  } finally {
    voice.opening = false;
    showMicrophone();
  }
}

async function endMicrophone(reason) {
  await voice.microphone?.close();
  voice.microphone = null;
  showMicrophone();
  if (reason) complain(reason);
}

function showMicrophone() {
  const on = voice.microphone !== null;
  find('microphone').setAttribute('aria-pressed', on);
  find('microphone-words').textContent = on ? 'Microphone on' : 'Talk';
  find('voice').hidden = !on;
  find('talk').hidden = !find('push').checked;
  find('mute').setAttribute('aria-pressed', voice.muted);
  find('mute').textContent = voice.muted ? 'Unmute' : 'Mute';
  if (session.state === 'open' && !speaker.playing && !talk.open) status('open');
  if (!on) find('level').value = 0;
}

async function listDevices() {
  const chosen = voice.microphone?.device ?? find('device').value;
  const found = await devices();
  find('device').replaceChildren(
    ...found.map((device, index) => el('option', { value: device.deviceId, selected: device.deviceId === chosen }, device.label || `Microphone ${index + 1}`)),
  );
}

find('microphone').addEventListener('click', switchMicrophone);
find('mute').addEventListener('click', () => {
  voice.muted = !voice.muted;
  showMicrophone();
});
find('push').addEventListener('change', showMicrophone);
find('device').addEventListener('change', async () => {
  if (!voice.microphone) return;
  await endMicrophone();
  await switchMicrophone();
});
navigator.mediaDevices?.addEventListener?.('devicechange', listDevices);

function hold(held) {
  if (voice.held === held || !voice.microphone) return;
  voice.held = held;
  find('talk').setAttribute('aria-pressed', held);
  if (!held) session.send({ type: 'input_audio_buffer.commit' });
}

find('talk').addEventListener('pointerdown', () => hold(true));
for (const type of ['pointerup', 'pointercancel', 'pointerleave']) find('talk').addEventListener(type, () => hold(false));
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') hush();
  if (event.key === ' ' && mayHold(event.target) && !event.repeat) hold(true);
  if (event.key === ' ' && mayHold(event.target)) event.preventDefault();
});
document.addEventListener('keyup', (event) => event.key === ' ' && hold(false));

/** The space bar talks unless it has another meaning where the focus is. */
function mayHold(target) {
  return voice.microphone && find('push').checked && (target === find('talk') || !target.closest('input, button, select, summary, a'));
}

async function playQuestion(number) {
  hush();
  await opened(() => demo.play(number, (samples) => recording.sound('user', performance.now() - 20, samples)));
}

// ---------------------------------------------------------------- tools and the switch

find('early').addEventListener('change', () => {
  switchSpeculation();
  showTools(find('tools'), tools, find('early').checked);
});

/** Tells the session whether anything may run early. */
function switchSpeculation() {
  session.send({ type: 'session.update', session: { type: 'realtime', undertone: { speculation: find('early').checked } } });
}

function askConfirmation(event) {
  const answer = (accept) => {
    session.send({ type: 'undertone.confirmation.respond', call_id: event.call_id, accept });
    find('confirmations').replaceChildren();
  };
  find('confirmations').replaceChildren(confirmationCard(event, answer));
}

// ---------------------------------------------------------------- the timeline

turns.addEventListener('new', ({ detail: turn }) => show(turn));

turns.addEventListener('change', ({ detail: turn }) => {
  if (turn === view.turn) draw();
  if (turn.over) showMetrics(find('metrics'), turns.list);
});

function show(turn) {
  view.turn = turn;
  draw();
}

/** Draws now, and again and again while the turn goes on. */
function draw() {
  clearTimeout(view.timer);
  const turn = view.turn;
  if (!turn) return;
  find('empty').hidden = true;
  find('turn').hidden = false;
  timeline.draw(turn, turns.at(performance.now()) ?? 0);
  find('which').textContent = `Turn ${turn.number} of ${turns.list.length}`;
  find('question').textContent = turn.status === 'dropped' ? 'That was no speech' : turn.user.text || (turn.over ? 'The agent went on by itself' : '…');
  find('earlier').disabled = turn.number === 1;
  find('later').disabled = turn.number === turns.list.length;
  const moves = !turn.over || turn.clauses.some((clause) => clause.pieces.at(-1)?.to === null);
  const active = moves && session.state === 'open' && (turn.responded !== undefined || turn.user.speaking || turn.user.text !== '');
  if (active) view.timer = setTimeout(draw, DRAW_EVERY);
}

find('earlier').addEventListener('click', () => show(turns.list[view.turn.number - 2]));
find('later').addEventListener('click', () => show(turns.list[view.turn.number]));
find('copy').addEventListener('click', async () => {
  const text = JSON.stringify(plainTurn(view.turn), null, 2);
  find('copied').textContent = (await copy(text)) ? 'Copied.' : 'The browser does not let this page copy.';
  setTimeout(() => (find('copied').textContent = ''), 3000);
});
find('save-wav').addEventListener('click', () => !recording.empty && save(recording.wav(), 'undertone.wav'));
find('save-jsonl').addEventListener('click', () => !recording.empty && save(recording.jsonl(), 'undertone.jsonl'));

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el('textarea', { class: 'visually-hidden' });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}

// ---------------------------------------------------------------- how it stands

const STATUS = {
  ready: 'Ready',
  opening: 'Connecting…',
  open: 'Ready',
  listening: 'Listening',
  thinking: 'Thinking',
  speaking: 'Speaking',
  ended: 'Conversation over',
  lost: 'Server gone',
  locked: 'Token needed',
  refused: 'Not let in',
};

function status(name) {
  find('status').dataset.state = name;
  find('status').textContent = name === 'open' && voice.microphone && !voice.muted ? STATUS.listening : STATUS[name];
  find('hush').hidden = name !== 'speaking';
}

find('hush').addEventListener('click', hush);

function complain(text) {
  find('alert').textContent = text;
  find('alert').hidden = text === '';
}

session.addEventListener('state', ({ detail: { state, reason } }) => {
  status(state);
  find('token').hidden = state !== 'locked';
  if (state === 'lost') {
    speaker.flush();
    demo.stop();
    complain('The server does not answer. Trying again; this page goes on by itself when it is back.');
  } else if (state === 'refused') complain(reason);
  else if (state !== 'opening') complain('');
  if (state === 'ended') transcript.note(`The conversation is over${reason ? `: ${reason}` : ''}. It begins anew when you speak or type.`);
  if (state === 'ended' && voice.microphone) endMicrophone();
  if (state === 'lost' || state === 'ended') endTalk();
  if (state === 'ready') greet();
});

/** The conversation is gone, and what it knew with it. */
function endTalk() {
  if (turns.list.length > 0 && session.state === 'lost') transcript.note('The connection was lost. A new conversation follows.');
  talk.open = false;
  talk.waiting = [];
  turns.reset();
  transcript.hearing('');
  find('confirmations').replaceChildren();
}

find('token').addEventListener('submit', (event) => {
  event.preventDefault();
  session.unlock(find('token-value').value.trim());
});

/** Asks the server for its tools and questions. */
async function greet() {
  const about = await session.about();
  if (!about) return;
  tools = about.tools;
  turns.preRoll = about.pre_roll_ms;
  showTools(find('tools'), tools, find('early').checked);
  find('questions').replaceChildren(...about.questions.map((text, number) => el('button', { type: 'button', class: 'question', onclick: () => playQuestion(number) }, text)));
  find('demo').hidden = about.questions.length === 0;
}

showMetrics(find('metrics'), []);
showMicrophone();
find('microphone-note').textContent = obstacle() ?? '';
find('microphone').disabled = obstacle() !== null;
status('ready');
greet();
