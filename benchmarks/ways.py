"""The ways from text to hidden states that ``cache.py`` measures; each loads what it needs, returns what is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

POOLINGS = ("mean", "first", "max")
PADDED_TOKENS = 2048  # of a length-sorted stock batch, padding counted
Run = Callable[[Sequence[Any]], None]


@dataclass(frozen=True)
class Job:
    """What a process measures; ``work`` holds texts.json and what a way leaves for another."""

    way: str
    model: str
    work: str
    threads: int
    dtype: str = "float32"
    repeats: int = 2
    limit: int | None = None


def example(text: Any) -> Any:
    """A sentence as such, a pair of sentences as a tuple: what a tokenizer takes."""
    return text if isinstance(text, str) else tuple(text)


def task_of(texts: Sequence[Any]) -> Any:
    from probekit.tasks.task import Example, Split, Task, TaskKind

    pairs = [(t, None) if isinstance(t, str) else t for t in texts]
    examples = tuple(Example(str(i), a, label=0, pair=b) for i, (a, b) in enumerate(pairs))
    return Task("benchmark", TaskKind.CLASSIFICATION, {"all": Split("all", examples)}, ("none",))


def on_lanes(job: Job, work: Callable[[Any], Any], parts: Iterable[Any]) -> None:
    """Every way runs its batches so, in threads that have one processor each: it is the fastest for all of them."""
    import torch

    torch.set_num_threads(1)
    with ThreadPoolExecutor(job.threads, initializer=lambda: torch.set_num_threads(1)) as lanes:
        list(lanes.map(work, parts))
    torch.set_num_threads(job.threads)


def stock(job: Job, *, onednn: bool = False) -> tuple[Any, Any]:
    """Tokenizer and model as transformers loads them."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(job.model, dtype=getattr(torch, job.dtype)).eval()
    if onednn:
        from probekit.models.transformers.onednn import prepack

        prepack(model)
    return AutoTokenizer.from_pretrained(job.model), model


def joined(texts: Sequence[Any], tokenizer: Any) -> list[str]:
    """Pairs as one text with the separator in it: the same pieces, for what takes no pairs."""
    return [t if isinstance(t, str) else f" {tokenizer.sep_token} ".join(t) for t in texts]


def pipeline(job: Job) -> Run:
    from transformers import pipeline as make

    tokenizer, model = stock(job)
    extracts = [
        make("feature-extraction", model=model, tokenizer=tokenizer, batch_size=32, device="cpu")
        for _ in range(job.threads)
    ]

    def one(lane: int) -> None:
        for out in extracts[lane](parts[lane], return_tensors=True, truncation=True):
            out[0].mean(0)

    def run(texts: Sequence[Any]) -> None:
        nonlocal parts
        texts = joined(texts, tokenizer)
        parts = [texts[k :: job.threads] for k in range(job.threads)]
        on_lanes(job, one, range(job.threads))

    parts: list[list[str]] = []
    return run


def padded_forward(tokenizer: Any, model: Any, texts: list[str]) -> None:
    """Every layer's mean of a padded batch, all pieces that are no padding."""
    import torch

    inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        mask = inputs["attention_mask"][..., None]
        for hidden in model(**inputs, output_hidden_states=True).hidden_states:
            (hidden * mask).sum(1) / mask.sum(1)


def padded(job: Job, batch: int = 32) -> Run:
    tokenizer, model = stock(job)

    def run(texts: Sequence[Any]) -> None:
        texts = joined(texts, tokenizer)
        parts = [texts[i : i + batch] for i in range(0, len(texts), batch)]
        on_lanes(job, lambda part: padded_forward(tokenizer, model, part), parts)

    return run


def length_sorted(job: Job, *, onednn: bool = False) -> Run:
    tokenizer, model = stock(job, onednn=onednn)

    def run(texts: Sequence[Any]) -> None:
        texts = joined(texts, tokenizer)
        length = [len(ids) for ids in tokenizer(texts, truncation=True).input_ids]
        parts: list[list[str]] = [[]]
        for i in sorted(range(len(texts)), key=length.__getitem__):
            if (len(parts[-1]) + 1) * length[i] > PADDED_TOKENS:
                parts.append([])
            parts[-1].append(texts[i])
        on_lanes(job, lambda part: padded_forward(tokenizer, model, part), parts)

    return run


def encoder_of(job: Job) -> Any:
    from probekit.models import load_encoder

    return load_encoder(job.model, dtype=job.dtype, device="cpu")


def raw(job: Job) -> Run:
    """Our packed forward and nothing else: the whole set sorted by length, no vector kept."""
    from probekit.activations.writing.plan import batches
    from probekit.models.encoder import Batch

    encoder = encoder_of(job)

    def cut(texts: Sequence[Any]) -> Iterator[Batch]:
        tokens = encoder.tokenize([example(t) for t in texts])
        order = np.argsort(tokens.length, kind="stable")
        start = np.cumsum(tokens.length) - tokens.length
        for part in batches(tokens.length[order], encoder.batch_tokens, mixed=encoder.mixed_lengths):
            rows = np.concatenate([np.arange(start[i], start[i] + tokens.length[i]) for i in order[part]])
            yield Batch(tokens.token_ids[rows], tokens.type_ids[rows], tokens.length[order[part]])

    def run(texts: Sequence[Any]) -> None:
        on_lanes(job, lambda batch: encoder.encode(batch, lambda i, hidden: None), cut(texts))

    return run


def cached(job: Job, name: str = "", **options: Any) -> Run:
    from probekit import cache_activations

    encoder = encoder_of(job)
    out = Path(job.work) / f"{name or job.way}.h5"

    def run(texts: Sequence[Any]) -> None:
        cache_activations(encoder, task_of(texts), "all", dtype=job.dtype, out=out, overwrite=True, **options).close()

    return run


def by_workers(job: Job, workers: int) -> Run:
    """The whole command: every worker loads the model."""
    from probekit import cache_activations

    out = Path(job.work) / f"{job.way}.h5"

    def run(texts: Sequence[Any]) -> None:
        cache_activations(
            job.model, task_of(texts), "all", dtype=job.dtype, device="cpu", pooling=POOLINGS, workers=workers,
            out=out, overwrite=True,
        ).close()  # fmt: skip

    return run


@dataclass(frozen=True)
class Way:
    """``start`` loads and returns what is run; ``slow`` ones run in the first round only."""

    title: str
    start: Callable[[Job], Run]
    dtype: str = "float32"
    slow: bool = False


WAYS: dict[str, Way] = {
    "pipeline": Way("pipeline('feature-extraction'), batch 32, data order, last layer", pipeline, slow=True),
    "padded": Way("stock forward, batch 32, data order, all layers", padded, slow=True),
    "one-by-one": Way("stock forward, one by one, all layers", lambda j: padded(j, 1), slow=True),
    "sorted": Way("stock forward, sorted by length, all layers", length_sorted, slow=True),
    "sorted-onednn": Way("the same, prepacked linears", lambda j: length_sorted(j, onednn=True), slow=True),
    "raw": Way("our packed forward alone", raw),
    "pooled": Way("cache: mean + first + max", lambda j: cached(j, pooling=POOLINGS)),
    "tokens": Way("cache: all tokens, float16", lambda j: cached(j, pooling=(), tokens=True, store="float16")),
    "raw-bf16": Way("our packed forward alone, bfloat16", raw, "bfloat16"),
    "pooled-bf16": Way("cache: mean + first + max, bfloat16", lambda j: cached(j, pooling=POOLINGS), "bfloat16"),
    "tokens-bf16": Way(
        "cache: all tokens, bfloat16, float16 stored",
        lambda j: cached(j, pooling=(), tokens=True, store="float16"), "bfloat16",
    ),
    "compressed": Way(
        "cache: all tokens, bfloat16, --compress",
        lambda j: cached(j, pooling=(), tokens=True, compress=True), "bfloat16", slow=True,
    ),
    "lanes": Way("whole command, lanes", lambda j: by_workers(j, 1)),
    "workers": Way("whole command, a worker a core", lambda j: by_workers(j, j.threads)),
    "lanes-bf16": Way("whole command, lanes, bfloat16", lambda j: by_workers(j, 1), "bfloat16"),
    "workers-bf16": Way("whole command, a worker a core, bfloat16", lambda j: by_workers(j, j.threads), "bfloat16"),
}  # fmt: skip
