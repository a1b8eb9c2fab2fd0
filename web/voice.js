// The microphone controls: on and off, mute, push to talk, and the choice of devices.

import { devices, Microphone, obstacle } from './audio-in.js';
import { el } from './text.js';

/** The level at which the meter is full. */
const LOUD = 0.25;

const find = (id) => document.getElementById(id);

/**
 * The Talk button and its controls. Emits `frame` with the samples to send as `detail`, `change`
 * when it is switched on or off, `released` when push to talk ends, `loudspeaker` with the id of the one that was chosen, and
 * `trouble` with a message for the user.
 */
export class Voice extends EventTarget {
  #microphone = null;
  #muted = false;
  #held = false;
  #opening = false;
  #reachable = true;

  constructor() {
    super();
    find('microphone').addEventListener('click', () => this.#switch());
    find('mute').addEventListener('click', () => {
      this.#muted = !this.#muted;
      this.show();
    });
    find('push').addEventListener('change', () => this.show());
    find('device').addEventListener('change', async () => {
      if (!this.on) return;
      await this.end();
      await this.#switch();
    });
    find('loudspeaker').addEventListener('change', ({ target }) => this.dispatchEvent(new CustomEvent('loudspeaker', { detail: target.value })));
    navigator.mediaDevices?.addEventListener?.('devicechange', () => this.#list());
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

  /** Whether audio is being sent. */
  get listening() {
    return this.on && !this.#muted && (!find('push').checked || this.#held);
  }

  /** Whether the server is reachable. The microphone can always be switched off. */
  set reachable(reachable) {
    this.#reachable = reachable;
    this.show();
  }

  /** Switches it off. */
  async end(reason = '') {
    const microphone = this.#microphone;
    this.#microphone = null;
    this.#held = false;
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
    find('talk').setAttribute('aria-pressed', this.#held);
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
        device: find('device').value,
        onFrame: (samples, level) => this.#frame(samples, level),
        onEnd: () => this.end('The microphone was unplugged.'),
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

  async #list() {
    const chosen = this.#microphone?.device ?? find('device').value;
    const found = await devices('audioinput');
    find('device').replaceChildren(...options(found, chosen, 'Microphone'));
    // Firefox and Safari let a page choose for a call, but not for other sound.
    const loudspeakers = 'setSinkId' in AudioContext.prototype ? await devices('audiooutput') : [];
    find('loudspeaker').replaceChildren(...options(loudspeakers, find('loudspeaker').value, 'Loudspeaker'));
    find('loudspeaker-line').hidden = loudspeakers.length === 0;
  }

  #listenForHolding() {
    find('talk').addEventListener('pointerdown', () => this.#hold(true));
    for (const type of ['pointerup', 'pointercancel', 'pointerleave']) find('talk').addEventListener(type, () => this.#hold(false));
    document.addEventListener('keydown', (event) => {
      if (event.key !== ' ' || !this.#mayHold(event.target)) return;
      if (!event.repeat) this.#hold(true);
      event.preventDefault();
    });
    document.addEventListener('keyup', (event) => event.key === ' ' && this.#hold(false));
  }

  #hold(held) {
    if (this.#held === held || !this.on) return;
    this.#held = held;
    this.show();
    if (!held) this.dispatchEvent(new Event('released'));
  }

  /** Whether the space bar may push to talk, which it may not if the focused element uses it. */
  #mayHold(target) {
    return this.on && find('push').checked && (target === find('talk') || !target.closest('input, button, select, summary, a'));
  }
}

/** Options for devices; those without a name are counted. */
function options(devices, chosen, kind) {
  return devices.map(({ deviceId: value, label }, index) => el('option', { value, selected: value === chosen }, label || `${kind} ${index + 1}`));
}
