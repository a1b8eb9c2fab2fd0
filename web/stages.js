// When the stages of a turn were reached, while it happens. No DOM here.

import { end, playout, resultAt, speech } from './turns.js';

/**
 * The stages of a turn in the order in which they were reached: {name, after}, `after` in ms from the end of the user's
 * words; null for the next one, while the turn is in progress. As soon as the server has told its own times, those are used.
 */
export function stages(turn) {
  const { latency, user, runs, clauses } = turn;
  const origin = speech(turn).to;
  if (origin === null || user.speaking || turn.status === 'dropped') return [];
  const results = runs.filter((run) => run.committed !== undefined).map(resultAt);
  const all = [
    user.spoken && ['Words', latency.transcript ?? user.understood],
    user.spoken && ['End of turn', latency.end_of_turn ?? user.noticed],
    latency.llm_first !== undefined && ['Model', latency.llm_first],
    results.length > 0 && ['Tool', latency.tool_result ?? results.find((at) => at !== undefined)],
    ['Voice', latency.first_audio ?? clauses[0]?.at],
    ['Heard', playout(turn, end(turn))[0]?.from],
  ].filter(Boolean);
  const reached = all.filter(([, at]) => at !== undefined).map(([name, at]) => ({ name, after: Math.max(0, at - origin) }));
  reached.sort((one, other) => one.after - other.after);
  const next = all.find(([, at]) => at === undefined);
  return next && !turn.over ? [...reached, { name: next[0], after: null }] : reached;
}
