// Signs requests with Twilio's own library: sign.mjs TOKEN '[[URL, PARAMETERS], …]'
// Prints one JSON list of signatures.

import twilio from "twilio";

const [token, requests] = process.argv.slice(2);
const sign = ([url, parameters]) => twilio.getExpectedTwilioSignature(token, url, parameters);
console.log(JSON.stringify(JSON.parse(requests).map(sign)));
