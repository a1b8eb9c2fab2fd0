// The page: connects its parts.

import { obstacle } from './audio-in.js';
import { pcm, Speaker } from './audio-out.js';
import { Choices } from './choices.js';
import { Comparison } from './comparison.js';
import { Demo } from './demo.js';
import { Recording, save, Unheard } from './download.js';
import { keepFocus } from './focus.js';
import { showMetrics, waitsInShort } from './metrics.js';
import { Panel } from './panel.js';
import { Session, way } from './session.js';
import { el, listed } from './text.js';
import { confirmationCard, showTools, toolsInShort } from './tools.js';
import { Transcript } from './transcript.js';
import { isEarly, Turns } from './turns.js';
import { Voice } from './voice.js';
import { attempt, stage, subject } from './words.js';

const find = (id) => document.getElementById(id);
const session = new Session();
const speaker = new Speaker();
const demo = new Demo(session, speaker);
const turns = new Turns();
const recording = new Recording();
const unheard = new Unheard();
const transcript = new Transcript(find('log'), find('partial'));
const voice = new Voice();
const choices = new Choices();
const panel = new Panel(turns, () => session.state === 'open');
const comparison = new Comparison(transcript);
session.heard = () => turns.lastHeard();

/**
 * Typed messages: `waiting` for the end of a response, `sent` but not confirmed by the server, and `returned` to the field
 * while the page is away, although the server may have them. `unanswered`: one came while the agent had just begun to
 * speak, so its answer is asked for again after that.
 */
const typed = { waiting: [], sent: [], returned: [], connecting: false, unanswered: false };
const talk = { open: false, from: null };
let tools = [];
/** The questions that can be played, in all languages. */
let questions = [];
/** The language of conversations for which none is chosen, null if it depends on the agent; those of the agents. */
const languages = { usual: null, own: null, ofAgents: {} };

// ---------------------------------------------------------------- what the server tells

session.addEventListener('message', ({ detail: { event, arrived } }) => {
  recording.line(turns.at(arrived) ?? 0, withoutAudio(event));
  if (event.type === 'response.output_audio.delta') return hear(event);
  const turn = turns.take(event, arrived);
  REACTIONS[event.type]?.(event, turn, arrived);
});

const REACTIONS = {
  'session.created': ({ session: { model, audio } }) => {
    agent = model;
    hold.usual = audio.input.turn_detection;
    if (voice.held) sayHowTurnsEnd();
    // A greeting waits for the first update.
    switchSpeculation();
  },
  'session.updated': noteAgent,
  'undertone.session.resumed': () => {
    // What the server had has been confirmed before.
    typed.returned = [];
    // It may have been pressed or let go meanwhile.
    sayHowTurnsEnd();
  },
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
    if (item.role !== 'user' || content?.type !== 'input_text') return;
    if (typed.returned.length > 0) takeOut(typed.returned.shift());
    else typed.sent.shift();
    transcript.user(content.text);
  },
  'conversation.item.input_audio_transcription.completed': ({ transcript: text }) => {
    if (text === '') return noteNoWords();
    demo.understood();
    transcript.user(text);
  },
  'conversation.item.input_audio_transcription.failed': noteNoWords,
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
  'response.output_item.done': ({ item }) => item.error && transcript.note(`${attempt(item.name)} failed: ${item.error.message}`, 'failed'),
  'conversation.item.truncated': ({ item_id: item }) => session.send({ type: 'conversation.item.retrieve', item_id: item }),
  'conversation.item.retrieved': ({ item }) => {
    if (item.role === 'assistant') transcript.cut(item.id, item.content[0]?.transcript ?? '');
  },
  'response.done': () => {
    talk.open = false;
    const asksAgain = typed.unanswered && typed.waiting.length === 0;
    typed.unanswered = false;
    typed.waiting.splice(0).forEach(say);
    if (asksAgain) session.send({ type: 'response.create' });
    if (!speaker.playing) status('open');
    offerFiles();
  },
  'undertone.turn_record': (_, turn) => turn?.runs.forEach(noteRun),
  'undertone.clear': () => session.onTrack || speaker.flush(lastItem()),
  'undertone.playout': (event) => {
    const id = turns.edge(event);
    if (id !== null) speaker.edge(event.kind, id, event.audio_ms * 24, event.rtp_timestamp);
  },
  'output_audio_buffer.cleared': () => speaker.cleared(),
  'undertone.confirmation.asked': askConfirmation,
  'undertone.confirmation.ended': ({ outcome }) => {
    find('confirmations').replaceChildren();
    transcript.note(`Confirmation ${outcome}.`);
  },
  'undertone.stage_failed': ({ stage: name, message }) => transcript.note(`${stage(name)}: ${message}`, 'failed'),
  error: ({ error }) => {
    // A response had begun before the page could know.
    if (error.code === 'conversation_already_has_active_response') {
      typed.unanswered = true;
      return;
    }
    // A response may end just before it is cancelled, failed stages have been reported already, and who holds push to talk
    // need not speak.
    const told = /^(?:response_cancel_not_active|(?:asr|llm|tts|vad)_failed|input_audio_buffer_commit_empty)$/.test(error.code);
    if (!told) transcript.note(error.message, 'failed');
  },
};

function noteNoWords() {
  transcript.note('No words were recognised.');
}

/** An event for the events file, without its audio. */
function withoutAudio(event) {
  if (event.type !== 'response.output_audio.delta') return event;
  const { delta, ...rest } = event;
  return { ...rest, audio_ms: Math.round((delta.length * 3) / 4 / 48) };
}

function hear({ item_id: item, delta }) {
  const samples = pcm(delta);
  const id = turns.audio(item, samples.length);
  if (id === null) return;
  unheard.add(id, samples);
  speaker.play(id, samples);
}

/** Adds a note about a tool run to the transcript; failures have been noted already. */
function noteRun(run) {
  if (run.committed === undefined || !run.ok) return;
  const values = listed(run.arguments);
  transcript.note(`${subject(run.tool)}${values ? ` (${values})` : ''}${isEarly(run) ? ', begun early' : ''}`);
}

// ---------------------------------------------------------------- what is heard

const BLOCKED = 'The browser does not let this page play sound until you click somewhere in it.';

for (const type of ['started', 'ended', 'flushed']) {
  speaker.addEventListener(type, ({ detail }) => {
    const found = turns.heard(type, detail);
    if (!found) return;
    transcript.sounding(detail.id, type === 'started');
    if (type === 'started') {
      status('speaking');
      unheard.begin(detail.id);
      talk.from = { id: detail.id, samples: detail.samples, at: detail.at };
    } else {
      keepSound(detail);
      if (!talk.open && session.state !== 'away') status('open');
    }
    recording.line(turns.at(detail.at) ?? 0, { type: `page.${type}`, text: found.clause.text, heard_ms: detail.samples / 24 });
  });
}

/** Records the samples played since the piece started. */
function keepSound({ id, samples }) {
  if (talk.from?.id !== id) return;
  const { at, samples: begun } = talk.from;
  talk.from = null;
  const heard = unheard.take(id, begun, samples);
  if (!heard) return;
  recording.sound('agent', at, heard);
  offerFiles();
}

/** The item that the agent speaks, or has spoken last; undefined if there is none. */
const lastItem = () => turns.list.findLast((turn) => turn.clauses.length > 0)?.clauses.at(-1).item;

speaker.addEventListener('silent', ({ detail: { at, item } }) => {
  turns.silenced(at);
  // Over a track the server knows what it has not sent.
  if (item === undefined || session.onTrack) return;
  const clauses = turns.list.flatMap((turn) => turn.clauses).filter((clause) => clause.item === item);
  const total = (name) => clauses.reduce((sum, clause) => sum + clause[name], 0);
  if (total('heard') >= total('samples')) return;
  session.send({ type: 'conversation.item.truncate', item_id: item, content_index: 0, audio_end_ms: Math.floor(total('heard') / 24) });
});

speaker.addEventListener('sound', ({ detail: samples }) => {
  recording.frame('agent', performance.now(), samples);
  if (samples) offerFiles();
});
speaker.addEventListener('blocked', () => complain(BLOCKED));
speaker.addEventListener('allowed', () => find('alert').textContent === BLOCKED && complain(''));
session.addEventListener('track', ({ detail: { receiver, stream } }) => speaker.follow(receiver, stream));

// ---------------------------------------------------------------- what the user says

find('composer').addEventListener('submit', async (event) => {
  event.preventDefault();
  const text = find('words').value.trim();
  if (text === '' || typed.connecting || !reachable()) return;
  demo.stop();
  comparison.stop();
  speaker.wake();
  typed.connecting = true;
  await opened(() => {
    // Cleared only now: typed text stays in the field until it can be sent, and text typed
    // meanwhile stays for the next message.
    takeOut(text);
    if (talk.open) {
      typed.waiting.push(text);
      hush();
    } else {
      say(text);
    }
  });
  typed.connecting = false;
});

/** Takes a message out of the field. What was typed behind it stays. */
function takeOut(text) {
  const field = find('words');
  const whole = field.value.trimStart();
  if (whole.startsWith(text)) field.value = whole.slice(text.length).trimStart();
}

function say(text) {
  transcript.toEnd();
  turns.typed(performance.now());
  typed.sent.push(text);
  session.send({ type: 'conversation.item.create', item: { type: 'message', role: 'user', content: [{ type: 'input_text', text }] } });
  session.send({ type: 'response.create' });
}

/** Stops the agent. */
function hush() {
  comparison.stop();
  silence();
}

/** Stops what is heard of the conversation. */
function silence() {
  const mayFollow = talk.open || (session.onTrack && speaker.playing);
  speaker.flush(lastItem());
  if (mayFollow) session.send({ type: 'output_audio_buffer.clear' });
}

/** Runs an action once a conversation is open. */
function opened(act) {
  return opening(() => session.open().then(act));
}

/** Runs an action that opens a conversation. If none opens, the session has told why. */
async function opening(act) {
  try {
    await act();
  } catch (error) {
    if (session.state === 'open') complain(error.message);
  }
}

voice.addEventListener('frame', ({ detail: samples }) => {
  if (demo.playing || comparison.playing || !session.audio(samples)) return;
  recording.frame('user', performance.now(), samples);
});
voice.addEventListener('change', () => {
  find('microphone-told').textContent = voice.on ? '' : 'The microphone is off.';
  if (!voice.on) return;
  comparison.stop();
  speaker.wake();
  opened(() => {});
});
voice.addEventListener('shown', () => {
  route();
  if (session.state === 'open' && !speaker.playing && !talk.open) status('open');
});
voice.addEventListener('loudspeaker', ({ detail: device }) => {
  speaker.device = device;
  comparison.device = device;
});
voice.addEventListener('trouble', ({ detail: words }) => complain(words));
// While words are composed, as in Japanese, it only ends that.
document.addEventListener('keydown', ({ key, isComposing }) => key === 'Escape' && !isComposing && hush());
find('hush').addEventListener('click', hush);

/** Lets the microphone's track be heard while it should be. */
function route() {
  if (voice.track) voice.track.enabled = voice.listening && !comparison.playing;
  session.microphone = voice.track;
}

async function playQuestion(number) {
  hush();
  await opening(() => demo.play(number, (samples) => recording.frame('user', performance.now(), samples)));
}

comparison.addEventListener('playing', () => {
  route();
  if (!comparison.playing) return;
  demo.stop();
  silence();
  complain('');
  leaveStart();
});

// ---------------------------------------------------------------- push to talk

/** The delay of audio on a track behind an event, ms. */
const TRACK_DELAY = 150;

/** A shorter press says nothing, ms: the server takes no less audio for a turn. */
const LEAST_PRESS = 100;

/** Push to talk: when it was pressed, the timer that commits what was said, and how turns end without it. */
const hold = { since: 0, commit: 0, usual: undefined };

/**
 * While it is held, no pause ends the turn, up to the longest that the server can be asked to wait for. Without any turn
 * detection the server would look nothing up until the release.
 */
const NO_PAUSE = { type: 'server_vad', silence_duration_ms: 10_000 };

function sayHowTurnsEnd() {
  const turn_detection = voice.held ? NO_PAUSE : hold.usual;
  session.send({ type: 'session.update', session: { type: 'realtime', audio: { input: { turn_detection } } } });
}

voice.addEventListener('pressed', () => {
  if (hold.commit === 0) hold.since = performance.now();
  clearTimeout(hold.commit);
  hold.commit = 0;
  demo.stop();
  hush();
  sayHowTurnsEnd();
});

voice.addEventListener('released', () => {
  const isLong = performance.now() - hold.since >= LEAST_PRESS;
  const commit = () => {
    hold.commit = 0;
    if (isLong) session.send({ type: 'input_audio_buffer.commit' });
    sayHowTurnsEnd();
  };
  // What was said last may still be on its way, over a track.
  hold.commit = setTimeout(commit, session.onTrack ? TRACK_DELAY : 0);
});

// ---------------------------------------------------------------- tools and the switch

find('early').addEventListener('change', () => {
  switchSpeculation();
  describeTools();
});

/** Turns speculation on or off for the session. */
function switchSpeculation() {
  session.send({ type: 'session.update', session: { type: 'realtime', undertone: { speculation: find('early').checked } } });
}

function describeTools() {
  showTools(find('tools'), tools, find('early').checked);
  find('tools-short').textContent = toolsInShort(tools, find('early').checked);
  find('toolbox').hidden = tools.length === 0;
}

// ---------------------------------------------------------------- agents

/** The agent of the conversation, by its name; the server's name if there is only one. */
let agent = null;

/** Notes in the transcript when another agent goes on. */
function noteAgent({ session: { model } }) {
  if (agent !== null && model !== agent) transcript.note(`${model} goes on.`);
  agent = model;
}

/** Offers the agents that this visitor may choose; a single one is no choice. */
function offerAgents(names) {
  const options = [['', 'chosen for you'], ...names.map((name) => [name, name])];
  find('agent').replaceChildren(...options.map(([value, text]) => el('option', { value, selected: value === session.wishes.agent }, text)));
  find('agents').hidden = names.length === 0;
}

find('agent').addEventListener('change', ({ target }) => {
  session.wishes.agent = target.value;
  wish();
  beginAnew();
});

choices.addEventListener('change', () => {
  wish();
  beginAnew();
});

/** Tells the next conversation the visitor's voice and language. */
function wish() {
  choices.usual = languages.ofAgents[session.wishes.agent] ?? languages.usual;
  const { voice, language, spoken } = choices;
  Object.assign(session.wishes, { voice, language });
  // A screen reader chooses its voice by it.
  transcript.language = spoken;
  offerQuestions(spoken || languages.own);
}

/** Offers the questions in a language. */
function offerQuestions(language) {
  const offered = questions.filter((question) => question.language === language);
  find('questions').replaceChildren(...offered.map(({ number, text }) => el('button', { type: 'button', class: 'question', lang: language, onclick: () => playQuestion(number) }, text)));
  comparison.language = language === languages.usual ? '' : language;
  comparison.questions = offered.filter(({ demonstrates }) => demonstrates);
  find('demo').hidden = offered.length === 0;
  enable(reachable());
}

/** Ends the conversation, so that the next one is as the visitor wants it. */
function beginAnew() {
  hush();
  demo.stop();
  session.end();
}

function askConfirmation(event) {
  const answer = (accept) => {
    session.send({ type: 'undertone.confirmation.respond', call_id: event.call_id, accept });
    find('confirmations').replaceChildren();
  };
  find('confirmations').replaceChildren(confirmationCard(event, answer, transcript.language));
}

// ---------------------------------------------------------------- turns and files

turns.addEventListener('new', () => {
  comparison.hide();
  leaveStart();
});

/** From the first screen to the one with two columns. */
function leaveStart() {
  document.body.classList.remove('fresh');
  document.querySelector('.conversation').scrollIntoView({ block: 'nearest' });
}

turns.addEventListener('change', ({ detail: turn }) => {
  if (!turn.over) return;
  showMetrics(find('metrics'), turns.list);
  find('waits-short').textContent = waitsInShort(turns.list);
  find('waits').hidden = false;
});

/** Shows the download buttons once there is something to save. */
function offerFiles() {
  find('save-wav').hidden = !recording.sounds;
  find('save-jsonl').hidden = recording.empty;
}

find('save-wav').addEventListener('click', () => save(recording.wav(), 'undertone.wav'));
find('save-jsonl').addEventListener('click', () => save(recording.jsonl(), 'undertone.jsonl'));

// ---------------------------------------------------------------- how it stands

const STATUS = {
  ready: '',
  opening: 'Connecting…',
  open: '',
  listening: 'Listening…',
  thinking: 'Thinking…',
  speaking: 'Speaking. You may speak over it.',
  ended: '',
  away: 'Reconnecting…',
  lost: '',
  locked: '',
  refused: '',
};

function status(name) {
  find('status').dataset.state = name;
  find('status').textContent = name === 'open' && voice.on ? waiting() : STATUS[name];
  find('hush').hidden = name !== 'speaking';
}

/** The status while the page waits for the user's words. */
function waiting() {
  if (!voice.listening) return 'Not listening.';
  return voice.silenced ? 'The microphone is muted, by a switch of its own or by the system.' : 'Listening. Say something.';
}

/** Says how the page is connected, and why not over WebRTC. */
function tellWay(onTrack) {
  const isFallback = !onTrack && !way.socket;
  find('way-told').textContent = onTrack ? 'Connected over WebRTC.' : `Connected over WebSocket${isFallback ? `: ${way.trouble ?? 'the call was cut off.'}` : '.'}`;
  find('way-told').classList.toggle('fallback', isFallback);
}

comparison.addEventListener('connected', ({ detail: onTrack }) => tellWay(onTrack));

find('way').addEventListener('change', ({ target }) => {
  way.socket = target.value === 'websocket';
  // Choosing WebRTC again tries it again.
  way.trouble = null;
  beginAnew();
});

/** Shows an error. The same again is no change: a screen reader would say it again. */
function complain(text) {
  if (find('alert').textContent !== text) find('alert').textContent = text;
  find('alert').hidden = text === '';
}

/** Whether connecting may work. A server that has refused may accept the next attempt. */
function reachable() {
  return !['away', 'lost', 'locked'].includes(session.state);
}

session.addEventListener('state', ({ detail: { state, reason } }) => {
  status(state);
  if (state === 'open') tellWay(session.onTrack);
  else if (state !== 'opening') find('way-told').textContent = '';
  if (state !== 'open' && state !== 'opening') speaker.leave();
  find('token').hidden = state !== 'locked';
  enable(reachable());
  if (state === 'away' || state === 'lost') {
    // The server is told how much of it was heard when the page is back.
    speaker.flush();
    demo.stop();
    comparison.stop();
  }
  if (state === 'away') {
    keepTyped();
    complain('The server does not answer. This page reconnects by itself, and the conversation goes on where you heard it last.');
  } else if (state === 'lost') {
    complain('The server does not answer. What you typed is kept, and this page goes on by itself as soon as the server is back.');
  } else if (state === 'refused' || state === 'locked') complain(reason);
  else if (state !== 'opening') complain(speaker.blocked ? BLOCKED : '');
  if (state === 'ended') transcript.note(`The conversation is over${reason ? `: ${reason}` : ''}. It begins anew when you speak or type.`);
  // Nobody listens, and nothing goes on by itself.
  if (['ended', 'refused', 'locked'].includes(state) && voice.on) voice.end();
  if (state === 'lost' || state === 'ended') endTalk();
  if (state === 'ready') greet();
  if (state === 'locked' && reason) {
    find('token-value').focus();
    find('token-value').select();
  }
});

/** Disables the controls that need a server; typing stays possible. */
function enable(on) {
  for (const control of document.querySelectorAll('#send, #early, #compare, #questions button, #comparison-questions button, #confirmations button')) control.disabled = !on;
  // A scrollable region must be focusable by keyboard if it has no enabled controls.
  find('questions').tabIndex = on ? -1 : 0;
  voice.reachable = on;
}

/** Puts back what was typed and may not have reached the server, before what is being typed. */
function keepTyped() {
  const field = find('words');
  field.value = [...typed.sent, ...typed.waiting, field.value].filter(Boolean).join(' ');
  Object.assign(typed, { waiting: [], sent: [], returned: typed.sent });
}

/** Resets the state of a lost or ended conversation. */
function endTalk() {
  keepTyped();
  Object.assign(typed, { returned: [], unanswered: false });
  talk.open = false;
  talk.forgotten = turns.list.length > 0 && session.state === 'lost';
  turns.reset();
  panel.draw();
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
  if (talk.forgotten) transcript.note('The server is back. It begins a new conversation and does not know the one above.');
  talk.forgotten = false;
  tools = about.tools;
  offerAgents(about.agents);
  questions = about.questions.map((question, number) => ({ ...question, number }));
  Object.assign(languages, { usual: about.language, own: about.languages[0], ofAgents: about.agent_languages });
  choices.offer(about);
  wish();
  turns.preRoll = about.pre_roll_ms;
  describeTools();
  comparison.preRoll = about.pre_roll_ms;
}

// Otherwise the server learns only by and by that nobody is there. The page says so, because a browser may bring it back.
addEventListener('pagehide', () => {
  comparison.stop();
  session.end();
});

keepFocus();
voice.show();
find('microphone-note').textContent = obstacle() ?? '';
status('ready');
greet();
