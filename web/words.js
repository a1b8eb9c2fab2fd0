// Texts for users about tools and events.

/** The verbs of reading tools' names; the rest of the name is the subject. */
const READS = /^(?:get|read|check|find|look up|lookup|search for|search|list|fetch|show|query) (?:the |my |your )?(.+)$/;

/** The name of a tool as words: `getWeather` and `get-weather` are "get weather". */
export function spaced(tool) {
  return String(tool ?? '')
    .replace(/([a-z\d])([A-Z])/g, '$1 $2')
    .replace(/[_\-.\s]+/g, ' ')
    .trim()
    .toLowerCase();
}

/** A tool's subject: "weather" for `get_weather`, "convert currency" for `convert_currency`. */
export function subject(tool) {
  const name = spaced(tool);
  return READS.exec(name)?.[1] ?? name;
}

/** The activity of tools: "looking up the weather", or a general phrase if the name does not tell. */
export function doing(tools) {
  const found = tools.map((tool) => READS.exec(spaced(tool))?.[1]);
  if (found.length === 0 || found.includes(undefined)) return 'working on the answer';
  return `looking up ${[...new Set(found)].map((what) => `the ${what}`).join(' and ')}`;
}

/** The activity as the subject of a failure: "Looking up the weather". */
export function attempt(tool) {
  const what = READS.exec(spaced(tool))?.[1];
  return what ? `Looking up the ${what}` : `The call “${spaced(tool)}”`;
}

/** Reasons for discarding an early call. */
const DISCARDED = {
  superseded: 'your next words changed what was wanted',
  turn_ended: 'it was not needed',
  interrupted: 'you interrupted',
  no_turn: 'it was no speech',
  stale: 'what it had read was changed meanwhile',
  expired: 'its result had become too old',
  failed: 'it failed',
  budget: 'the budget for early calls was spent',
  overloaded: 'the server was too busy',
  hung_up: 'the conversation ended',
};

/** Reasons for not following a prediction. */
const DECLINED = {
  unknown_tool: 'there is no such tool',
  failed_before: 'the same call has just failed',
  forbidden: 'this tool waits for the end of your turn',
  unlikely: 'not sure enough',
  turn_cap: 'enough early calls in this turn',
  tool_cap: 'enough early calls of this tool in this turn',
  at_once_cap: 'enough early calls at once',
  not_worth_it: 'it would cost more than it could save',
  write_pending: 'a change was under way',
  result_missing: 'it needs the result of another call first',
};

/** Outcomes of predictions that were followed. */
const FOLLOWED = { started: 'so the call was started', warmed_up: 'so the connection was opened', known: 'the same call was under way already' };

/** Names of the predictors. */
const SOURCES = {
  rule: 'a rule',
  intent: 'the classifier',
  transition: 'what usually follows',
  draft: 'a small model',
  stream: 'the model’s unfinished answer',
};

/** Descriptions of failed stages. */
const STAGES = {
  asr: 'Your words could not be recognised',
  llm: 'The language model failed',
  tts: 'The voice failed',
  vad: 'The sound of the microphone could not be judged',
};

export const discarded = (reason) => DISCARDED[reason] ?? spaced(reason);
export const decided = (decision) => (typeof decision === 'string' ? (FOLLOWED[decision] ?? spaced(decision)) : (DECLINED[decision.declined] ?? spaced(decision.declined)));
export const guesser = (source) => SOURCES[source] ?? spaced(source);
export const stage = (name) => STAGES[name] ?? `The stage “${spaced(name)}” failed`;
