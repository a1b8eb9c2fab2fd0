// The microphone: permission, device, level and audio frames.

import { start } from './audio-out.js';

/** The reason that the microphone is unavailable, as a message for the user. */
export class MicrophoneError extends Error {}

/**
 * The reason that this page cannot use a microphone at all, before asking for permission; null if
 * it can.
 * @returns {string | null}
 */
export function obstacle() {
  if (!window.isSecureContext) {
    return 'This page was not loaded securely, so the browser offers no microphone. Open it as http://localhost or over https. Typing works.';
  }
  if (!navigator.mediaDevices?.getUserMedia) return 'This browser offers no microphone. Typing works.';
  return null;
}

/**
 * Lists the microphones (`audioinput`) or the loudspeakers (`audiooutput`). Their names are empty until the user has
 * granted permission.
 * @returns {Promise<MediaDeviceInfo[]>}
 */
export async function devices(kind) {
  const all = (await navigator.mediaDevices?.enumerateDevices?.()) ?? [];
  return all.filter((device) => device.kind === kind);
}

/** An open microphone. Frames are 20 ms of PCM16 at 24 kHz. */
export class Microphone {
  /**
   * Requests the microphone and starts it.
   * `onMute` is called when the device is muted or not any more.
   * @param {{device?: string, onFrame: (samples: Int16Array, level: number) => void, onMute: () => void, onEnd: () => void}} options
   * @returns {Promise<Microphone>}
   */
  static async open({ device, onFrame, onMute, onEnd }) {
    const blocked = obstacle();
    if (blocked) throw new MicrophoneError(blocked);
    const stream = await ask(device);
    const context = new AudioContext({ latencyHint: 'interactive' });
    try {
      await context.audioWorklet.addModule('audio-in.worklet.js');
      const node = new AudioWorkletNode(context, 'capture', { channelCount: 1, channelCountMode: 'explicit' });
      node.port.onmessage = ({ data }) => onFrame(data.samples, data.level);
      // The node outputs silence; it only runs if it is connected to the output.
      context.createMediaStreamSource(stream).connect(node).connect(context.destination);
      await start(context);
    } catch (error) {
      stream.getTracks().forEach((track) => track.stop());
      context.close().catch(() => {});
      throw new MicrophoneError(`The microphone could not be started: ${error.message}`);
    }
    const [track] = stream.getAudioTracks();
    track.addEventListener('ended', onEnd);
    for (const type of ['mute', 'unmute']) track.addEventListener(type, onMute);
    return new Microphone(stream, context);
  }

  constructor(stream, context) {
    this.stream = stream;
    this.context = context;
    /** The track that a call sends. It may be switched off while the level is still shown. */
    this.track = stream.getAudioTracks()[0].clone();
  }

  /** The id of the device in use. */
  get device() {
    return this.stream.getAudioTracks()[0]?.getSettings().deviceId ?? '';
  }

  /** Whether a switch of the device, or the system, mutes it. */
  get silenced() {
    return this.stream.getAudioTracks()[0]?.muted ?? false;
  }

  /** Switches it off. */
  async close() {
    this.track.stop();
    this.stream.getTracks().forEach((track) => track.stop());
    await this.context.close();
  }
}

async function ask(device) {
  const audio = {
    echoCancellation: true,
    noiseSuppression: true,
    autoGainControl: true,
    channelCount: 1,
    ...(device ? { deviceId: { exact: device } } : {}),
  };
  try {
    return await navigator.mediaDevices.getUserMedia({ audio });
  } catch (error) {
    // Firefox finds none at all if the chosen one is gone.
    if (device && ['OverconstrainedError', 'NotFoundError'].includes(error.name)) return ask();
    throw new MicrophoneError(reason(error));
  }
}

function reason(error) {
  switch (error.name) {
    case 'NotAllowedError':
      return 'The microphone is not allowed here. Allow it in the address bar and try again, or type.';
    case 'NotFoundError':
      return 'There is no microphone. Plug one in, play a question, or type.';
    case 'NotReadableError':
      return 'Another program holds the microphone. Close it and try again, or type.';
    default:
      return `The microphone could not be opened: ${error.message}`;
  }
}
