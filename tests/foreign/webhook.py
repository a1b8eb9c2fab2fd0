"""Verifies a webhook with OpenAI's own library, which follows the Standard Webhooks specification.

stdin: {"secret", "headers", "body"}; exit code 0 if the signature is valid, 1 if not.
"""

import json
import sys

from openai import InvalidWebhookSignatureError, OpenAI

asked = json.load(sys.stdin)
client = OpenAI(api_key="none")
try:
    client.webhooks.verify_signature(asked["body"], asked["headers"], secret=asked["secret"])
except InvalidWebhookSignatureError:
    sys.exit(1)
