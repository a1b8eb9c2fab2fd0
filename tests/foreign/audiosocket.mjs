// A caller over AudioSocket: speaks for half a second, listens to the answer, hangs up, and reports
// what it heard. `node audiosocket.mjs PORT`
import net from 'node:net'
import { AudioSocketConnection, FRAME_BYTES, FrameType, encodeFrame } from 'asterisk-audiosocket'

const [port] = process.argv.slice(2)
const FRAMES = 25
const heard = { frames: 0, odd: 0, answer: 0, answered: [] }

const socket = net.connect({ port: Number(port), host: '127.0.0.1', noDelay: true })
const call = new AudioSocketConnection(socket)
call.on('error', (error) => { throw error })
call.on('hangup', () => console.log(JSON.stringify(heard)))

const tone = Buffer.alloc(FRAMES * FRAME_BYTES)
for (let at = 0; at < tone.length; at += 2) tone.writeInt16LE(8000, at)

call.on('audio', (pcm) => {
  heard.frames += 1
  if (pcm.length !== FRAME_BYTES) heard.odd += 1
  const sample = pcm.readInt16LE(0)
  if (sample !== 0) {
    heard.answer += 1
    if (!heard.answered.includes(sample)) heard.answered.push(sample)
  } else if (heard.answer > 0) {
    call.hangup()
  }
})

socket.on('connect', () => {
  socket.write(encodeFrame(FrameType.UUID, Buffer.from('00112233445566778899aabbccddeeff', 'hex')))
  call.play(tone)
  call.play(Buffer.alloc(FRAMES * FRAME_BYTES))
})
