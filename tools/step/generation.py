"""Generation of a spec: turns of a conversation and their cache."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from step.batch import make_inputs
from step.spec import Spec


def watch_generation(length_of: Callable[[], int], begin_decode: Callable[[], None]) -> None:
    """generate() tells where its prefill ends, and stops at its length: the ghost's tokens are no numbers to stop at."""
    from transformers.generation import utils

    prefill = utils.GenerationMixin._prefill

    def watched(self: Any, *given: Any, **keywords: Any) -> Any:
        outputs = prefill(self, *given, **keywords)
        begin_decode()
        return outputs

    def stop(_self: Any, unfinished: Any, _tokens: Any, length: int) -> bool:
        bool(unfinished.max() == 0)
        return length >= length_of()

    utils.GenerationMixin._prefill = watched
    utils.StopCheck.__call__ = stop


def watch_static_cache(past_of: Callable[[], int]) -> None:
    """SDPA goes without a mask where nothing is cached, which a StaticLayer keeps on the device: the answer is given here."""
    from transformers import masking_utils

    ignores = masking_utils._ignore_causal_mask_sdpa

    def answer(padding_mask: Any, queries: int, keys: int, offset: Any, *rest: Any) -> bool:
        found = ignores(padding_mask, queries, keys, offset, *rest)
        return found and (isinstance(offset, int) or ignores(padding_mask, queries, keys, past_of(), *rest))

    masking_utils._ignore_causal_mask_sdpa = answer


def make_cache(model: Any, options: dict[str, Any], length: int) -> Any:
    """A cache of one's own, as a conversation keeps it from one generate() to the next."""
    import transformers

    config, name = model.config.get_text_config(decoder=True), options["implementation"]
    if name in ("static", "offloaded_static"):
        longest = max(length, options.get("max_cache_len") or 0)
        return transformers.StaticCache(config=config, max_cache_len=longest, offloading=name == "offloaded_static")
    if name == "quantized":
        rest = {k: v for k, v in options.items() if k not in ("implementation", "backend")}
        return transformers.QuantizedCache(backend=options.get("backend", "quanto"), config=config, **rest)
    return transformers.DynamicCache(config=config, offloading=name == "offloaded")


def generate(spec: Spec, model: Any, batch: dict[str, Any], phase: Callable[[int, str], contextlib.AbstractContextManager[Any]]) -> None:
    """Turns of a conversation by greedy `generate`; images come with the first, and later ones' own; the cache is kept.

    A later turn's prompt is all that was said so far and `turn_tokens` more, as a chat template makes it. A model that does not
    generate runs forward once. Decoding is eager: no torch.compile.
    """
    import torch

    model.eval()
    config = getattr(model, "config", None)  # a plain module has none
    for part in (config, getattr(config, "text_config", None)):
        if part is not None:
            part.use_cache = True
    options = spec["inference"]
    if not hasattr(model, "generate"):
        with phase(1, "prefill"), torch.no_grad():
            model(**batch)
        return
    new, turns, more = options["new_tokens"], options["turns"], options["turn_tokens"]
    cache_options = options["cache"]
    given: dict[str, Any] = {"max_new_tokens": new, "do_sample": False, "disable_compile": True}
    if options["logits"] == "all":
        given["logits_to_keep"] = 0
    if options.get("prefill_chunk_size"):
        given["prefill_chunk_size"] = options["prefill_chunk_size"]
    rows, length = batch["input_ids"].shape
    total = turns * (new + more) - more + length
    if turns > 1:
        given["past_key_values"] = make_cache(model, cache_options, total - 1)
    elif cache_options["implementation"] != "dynamic":
        given["cache_implementation"] = cache_options["implementation"]
        config = {k: v for k, v in cache_options.items() if k != "implementation"}
        if config and cache_options["implementation"] == "static":
            given |= config
        elif config:
            given["cache_config"] = config
    wanted = 0
    stack = contextlib.ExitStack()
    turn = 1

    def begin_decode() -> None:
        stack.close()
        stack.enter_context(phase(turn, "decode"))

    watch_generation(lambda: wanted, begin_decode)
    watch_static_cache(lambda: turn - 1)
    for turn in range(1, turns + 1):  # noqa: B007
        wanted = length + new
        with stack:
            stack.enter_context(phase(turn, "prefill"))
            inputs = dict(batch)
            if turn > 1:
                inputs = {k: torch.ones((rows, length), dtype=torch.int64, device=model.device) for k in ("input_ids", "attention_mask")}
                inputs |= make_inputs({"inputs": options.get("turn_inputs", {})})
                batch |= inputs
            model.generate(**inputs, **given)
        length = wanted + more
