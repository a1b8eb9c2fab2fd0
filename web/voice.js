// The microphone controls: on and off, mute, push to talk, and the choice of devices.

import { devices, Microphone, obstacle } from './audio-in.js';
import { keep, recall } from './choices.js';
import { el } from './text.js';

/** The level at which the meter is full. */
const LOUD = 0.25;

const find = (id) => document.getElementById(id);

/**
 * The Talk button and its controls. Emits `frame` with the samples to send as `detail`, `change`
 * when it is switched on or off, `pressed` and `released` when push to talk begins and ends, `loudspeaker` with the id of the
 * one that was chosen, and `trouble` with a message for the user.
 */
export class Voice extends EventTarget {
  #microphone = null;
  #muted = false;
  /** The press that holds it: of a `pointer` or a `key`, or a `click` that holds it until the next; null if it is let go. */
  #held = null;
  #opening = false;
  #reachable = true;
  #loudspeaker = '';

  constructor() {
    super();
    find('microphone').addEventListener('click', () => this.#switch());
    find('mute').addEventListener('click', () => {
      this.#muted = !this.#muted;
      this.show();
    });
    find('push').addEventListener('change', () => {
      this.#hold(null);
      this.show();
    });
    find('device').addEventListener('change', async ({ target }) => {
      keep('microphone', target.value);
      if (!this.on) return;
      await this.end();
      await this.#switch();
    });
    find('loudspeaker').addEventListener('change', ({ target }) => {
      keep('loudspeaker', target.value);
      this.#playThrough(target.value);
    });
    navigator.mediaDevices?.addEventListener?.('devicechange', () => this.#list());
    this.#list();
    this.#listenForHolding();
  }

  /** Whether it is on. */
  get on() {
    return this.#microphone !== null;
  }

  /** Its track for a call; null while it is off. */
  get track() {
    return this.#microphone?.track ?? null;
  }

  /** Whether push to talk is held. */
  get held() {
    return this.#held !== null;
  }

  /** Whether a switch of the device, or the system, mutes it. */
  get silenced() {
    return this.#microphone?.silenced ?? false;
  }

  /** Whether audio is being sent. */
  get listening() {
    return this.on && !this.#muted && (!find('push').checked || this.held);
  }

  /** Whether the server is reachable. The microphone can always be switched off. */
  set reachable(reachable) {
    this.#reachable = reachable;
    this.show();
  }

  /** Switches it off. */
  async end(reason = '') {
    this.#hold(null);
    const microphone = this.#microphone;
    this.#microphone = null;
    await microphone?.close();
    this.#changed();
    if (reason) this.#trouble(reason);
  }

  /** Shows whether it is on, and how to stop it. */
  show() {
    find('microphone').classList.toggle('on', this.on);
    find('microphone').disabled = obstacle() !== null || (!this.on && !this.#reachable);
    find('microphone-words').textContent = this.on ? 'Stop' : 'Talk';
    find('microphone').setAttribute('aria-label', this.on ? 'Stop listening' : 'Talk');
    find('voice').hidden = !this.on;
    find('level').hidden = !this.on;
    find('talk').hidden = !this.on || !find('push').checked;
    find('talk').setAttribute('aria-pressed', this.held);
    find('mute').setAttribute('aria-pressed', this.#muted);
    if (!this.listening) find('level').value = 0;
    this.dispatchEvent(new Event('shown'));
  }

  async #switch() {
    if (this.#opening) return;
    if (this.on) return this.end();
    this.#opening = true;
    this.#trouble('');
    try {
      this.#microphone = await Microphone.open({
        device: recall('microphone'),
        onFrame: (samples, level) => this.#frame(samples, level),
        onMute: () => this.show(),
        onEnd: () => this.end('The microphone is gone: it was unplugged, or is not allowed here any more.'),
      });
      await this.#list();
    } catch (error) {
      this.#trouble(error.message);
    } finally {
      this.#opening = false;
      this.#changed();
    }
  }

  #changed() {
    this.show();
    this.dispatchEvent(new Event('change'));
  }

  #trouble(words) {
    this.dispatchEvent(new CustomEvent('trouble', { detail: words }));
  }

  #frame(samples, level) {
    find('level').value = this.listening ? Math.min(1, level / LOUD) : 0;
    if (this.listening) this.dispatchEvent(new CustomEvent('frame', { detail: samples }));
  }

  /** Offers the devices, as soon as the browser tells their names. */
  async #list() {
    offer('device', await devices('audioinput'), this.#microphone?.device ?? recall('microphone'));
    // Firefox and Safari let a page choose for a call, but not for other sound.
    const loudspeakers = 'setSinkId' in AudioContext.prototype ? await devices('audiooutput') : [];
    const chosen = recall('loudspeaker');
    offer('loudspeaker', loudspeakers, chosen);
    this.#playThrough(find('loudspeaker').value === chosen ? chosen : '');
  }

  #playThrough(device) {
    if (this.#loudspeaker === device) return;
    this.#loudspeaker = device;
    this.dispatchEvent(new CustomEvent('loudspeaker', { detail: device }));
  }

  #listenForHolding() {
    const button = find('talk');
    button.addEventListener('pointerdown', (event) => {
      // Any other button opens a menu, and nobody says when that is over.
      if (event.button !== 0 || event.ctrlKey) return;
      this.#press('pointer');
      // Its release is told wherever it is by then.
      if (event.isTrusted) button.setPointerCapture(event.pointerId);
    });
    for (const type of ['pointerup', 'pointercancel', 'lostpointercapture']) button.addEventListener(type, () => this.#release('pointer'));
    // A click without a pointer is one of Enter, or of assistive technology.
    button.addEventListener('click', ({ detail }) => detail === 0 && this.#hold(this.held ? null : 'click'));
    document.addEventListener('keydown', (event) => {
      // Held down, Enter would click again and again.
      if (event.key === 'Enter' && event.repeat && event.target === button) event.preventDefault();
      if (event.key !== ' ' || !this.#mayHold(event.target)) return;
      if (!event.repeat) this.#press('key');
      event.preventDefault();
    });
    document.addEventListener('keyup', (event) => {
      if (event.key !== ' ') return;
      // Some browsers click only now.
      if (event.target === button) event.preventDefault();
      this.#release('key');
    });
    // The key is released in another window, and nobody says so.
    window.addEventListener('blur', () => this.#held !== 'click' && this.#hold(null));
  }

  /** Holds it until the release; lets it go if a click holds it. */
  #press(by) {
    this.#hold(this.#held === 'click' ? null : (this.#held ?? by));
  }

  #release(by) {
    if (this.#held === by) this.#hold(null);
  }

  #hold(by) {
    if (this.#held === by || !this.on) return;
    this.#held = by;
    this.show();
    this.dispatchEvent(new Event(this.held ? 'pressed' : 'released'));
  }

  /** Whether the space bar may push to talk, which it may not if the focused element uses it. */
  #mayHold(target) {
    return this.on && find('push').checked && (target === find('talk') || !target.closest('input, button, select, summary, a'));
  }
}

/** Fills a list of devices; a single one is no choice. */
function offer(id, devices, chosen) {
  const named = devices.filter(({ label }) => label !== '');
  find(id).replaceChildren(...named.map(({ deviceId: value, label }) => el('option', { value, selected: value === chosen }, label)));
  find(id).parentElement.hidden = named.length < 2;
}
