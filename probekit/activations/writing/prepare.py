"""The steps before a model runs: tokenize, plan, and create the file with everything known in advance."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from probekit.activations.certify import quick_certificate
from probekit.activations.grouping import stored_groups
from probekit.activations.label_sets import label_sets, strings
from probekit.activations.pooling import TokenLevel, token_rows
from probekit.activations.positions import ROLES, Known, Marks
from probekit.activations.writing.chosen import known_spans, marked, read_chats
from probekit.activations.writing.journal import Journal
from probekit.activations.writing.partial import Partial, Stream, attributes, create
from probekit.activations.writing.plan import Plan, make_plan, plan_in_order, unique_texts
from probekit.activations.writing.request import Request
from probekit.activations.writing.written import continued
from probekit.errors import CacheMismatch, TruncationError, UsageError
from probekit.models.encoder import Encoder, Text, Tokens, join
from probekit.runtime import Progress
from probekit.sites import Site, choose_all
from probekit.tasks.targets import reads_words
from probekit.tasks.task import Example, Split, TaskKind
from probekit.version import VERSION

__all__ = [
    "check_environment",
    "difference",
    "environment",
    "kept_sites",
    "permuted",
    "prepare",
    "static_of",
    "texts_of",
]

log = logging.getLogger(__name__)


def check_environment(partial: Partial, encoder: Encoder) -> None:
    """Refuse to continue a file that was begun in another environment; raises CacheMismatch."""
    now, then = environment(encoder), partial.spec["environment"]
    if now != then:
        raise CacheMismatch(
            f"{partial.file} was begun in another environment: {difference(then, now)}. "
            "Continue there, or start again with --overwrite."
        )


def environment(encoder: Encoder) -> dict[str, Any]:
    """All that affects the last bits of the numbers: the path through the model, versions of libraries."""
    facts, names = {**encoder.spec, **encoder.versions}, ("model", "checkpoint", "step", "revision")
    return {k: facts[k] for k in sorted(facts) if k not in (*names, "threads", "self_check")}


def difference(old: Mapping[str, Any], want: Mapping[str, Any]) -> str:
    """A description of the keys in which ``old`` differs from ``want``."""
    differs = [key for key, value in want.items() if old.get(key) != value]
    plain = [key for key in differs if not key.endswith("digest")]
    changes = [f"{NAMES.get(key, key)} is {old.get(key)!r} in the file and {want[key]!r} now" for key in plain]
    changes += [f"{NAMES.get(key, key)} have changed" for key in differs if not plain]
    return "; ".join(changes[:3]) or "its description differs"


NAMES = {
    "n": "the number of examples",
    "data_digest": "the data",
    "weights_digest": "the model's weights",
    "tokenizer_digest": "the tokenizer's files",
}
"""What a cache's description calls otherwise than people do."""


def prepare(request: Request, encoder: Encoder, journal: Journal, *, progress: Progress) -> None:
    """Create the partial file of a cache; raises TruncationError if texts are too long and may not be truncated."""
    want, task, part = request.want, request.task, request.part
    texts, known = _read(request, progress)
    text_of_slot: np.ndarray = np.arange(len(texts))
    if not request.stateful:
        texts, known, text_of_slot = _unique(texts, known)
    tokens = _tokenize(encoder, texts, progress)
    _warn_of_doubled(tokens)
    cut = tokens.truncated[text_of_slot].reshape(-1, int(want["sentences"])).any(1)
    _check_cut(request, encoder, cut)
    written = None
    if "generate" in want:
        assert known is not None
        written = continued(request, encoder, texts, tokens, known, progress)
        tokens = written.tokens
    prompt = None if written is None else written.prompt
    marks = None if known is None else marked(request, tokens, known, text_of_slot, prompt)
    plan = _plan(request, encoder, tokens, text_of_slot)
    tokens, pieces = permuted(tokens, plan.order)
    marks = None if marks is None else marks.at(pieces)
    rows = plan.row_to_unique.reshape(-1, int(want["sentences"]))
    rows = rows[:, 0] if rows.shape[1] == 1 else rows
    static, links, token_start = static_of(
        tokens, rows, plan.blocks, want["tokens"], marks, label_sets(task, _as_read(request, known, text_of_slot))
    )
    static["/truncated"] = cut
    if written is not None:
        static |= {"/pieces/prompt": written.prompt[plan.order], **written.datasets(text_of_slot, encoder)}
    groups, grouping = stored_groups(part.examples, task.kind, progress=progress)
    static |= groups
    pooled = tokens.special == 0 if marks is None or marks.chosen is None else marks.chosen
    not_special = pooled.astype(np.int64)
    content = np.add.reduceat(np.append(not_special, 0), (np.cumsum(tokens.length) - tokens.length)) * (
        tokens.length > 0
    )
    counts = {
        "sequences": len(text_of_slot),
        "unique": len(texts),
        "pieces": int(tokens.length.sum()),
        "truncated": int(cut.sum()),
        "empty": int((content == 0)[plan.row_to_unique].sum()),
    }
    spec = _spec(request, encoder, counts) | {
        "certificate": quick_certificate(encoder, texts),
        "links": links,
        "allow_nonfinite": request.options.allow_nonfinite,
    }
    create(
        request.path,
        journal,
        attributes=attributes(spec, request.spec_id, VERSION, {**request.about, "groups": grouping}),
        static=static,
        links=links,
        streams=_streams(request, encoder, int(token_start[-1])),
        dtype=want["store"],
        blocks=plan.blocks,
        token_start=token_start,
    )


def _warn_of_doubled(tokens: Tokens) -> None:
    """Warn of texts that begin with the piece that the tokenizer puts before each, as a chat template's <s>."""
    start = (np.cumsum(tokens.length) - tokens.length)[tokens.length > 1]
    ids, added = tokens.token_ids, tokens.special
    doubled = np.count_nonzero(added[start] & ~added[start + 1] & (ids[start] == ids[start + 1]))
    if doubled:
        log.warning(
            "%s of %s texts begin with the special token that the tokenizer adds itself, so the model reads it twice. "
            "Remove it from the texts (chat templates write it).",
            f"{doubled:,}",
            f"{len(tokens.length):,}",
        )


def _check_cut(request: Request, encoder: Encoder, cut: np.ndarray) -> None:
    """Refuse texts that are too long, ``cut`` (n,), if ``on_truncate`` is "error"."""
    if cut.any() and request.options.on_truncate == "error":
        first = request.part[int(np.argmax(cut))]
        raise TruncationError(
            f"{int(cut.sum())} of {len(cut)} examples are longer than the {encoder.max_length} pieces that "
            f"{encoder.name} reads; the first is {first.id!r}. Use --on-truncate keep to truncate them."
        )


def _plan(request: Request, encoder: Encoder, tokens: Tokens, text_of_slot: np.ndarray) -> Plan:
    """The order of the sequences, and their blocks."""
    itemsize = 4 if request.want["store"] == "float32" else 2
    slot_bytes = len(request.want["pooling"]) * sum(width for _, width in kept_sites(request.want, encoder)) * itemsize
    if request.stateful:
        return plan_in_order(tokens.length, int(request.want["sentences"]), request.stateful, slot_bytes)
    return make_plan(tokens.length, text_of_slot, slot_bytes)


def _streams(request: Request, encoder: Encoder, token_rows: int) -> list[Stream]:
    """The datasets for the model's vectors."""
    want, sites = request.want, kept_sites(request.want, encoder)
    shape = len(request.part), int(want["sentences"])
    streams = [
        Stream(f"/pooled/{p}/{site}", (shape[0], shape[1] * width), pooled=True)
        for p in want["pooling"]
        for site, width in sites
    ]
    if want["tokens"] and token_rows:
        streams += [Stream(f"/tokens/{site}", (token_rows, width), pooled=False) for site, width in sites]
    return streams


def kept_sites(want: Mapping[str, Any], encoder: Encoder) -> list[tuple[Site, int]]:
    """The sites to store and their widths, in the order of the model; by default all.

    Raises
    ------
    UsageError
        If the model has no such site.
    """
    chosen = set(choose_all(want.get("only"), encoder.sites, encoder.name))
    return [(site, width) for site, width in zip(encoder.sites, encoder.widths, strict=True) if site in chosen]


def _spec(request: Request, encoder: Encoder, counts: Mapping[str, int]) -> dict[str, Any]:
    """The spec of a cache, as far as it is known before the model runs."""
    task, sites = request.task, kept_sites(request.want, encoder)
    widths = [width for _, width in sites]
    return {
        **request.want,
        "spec_id": request.spec_id,
        "layers": [str(site) for site, _ in sites],
        "width": max(widths),
        **({"widths": list(widths)} if len(set(widths)) > 1 else {}),
        "counts": dict(counts),
        "metrics": list(task.metrics),
        "source": task.source,
        "licence": task.licence,
        "reads_at_most": encoder.max_length,
        "environment": environment(encoder),
    }


def _read(request: Request, progress: Progress) -> tuple[list[Text], list[Known] | None]:
    """The encoder's input, one or two texts per row, and what is known of each, if that is asked for."""
    want, task, part = request.want, request.task, request.part
    if request.template is not None:
        texts, known = read_chats(request, progress=progress)
    else:
        texts = texts_of(part, task.kind, want["pairs"])
        asked = "positions" in want or "generate" in want
        known = known_spans(part, task.kind, want["pairs"]) if asked else None
    if known is not None and "temperature" in want.get("generate", ""):  # equal texts are continued in different ways
        known = [replace(of, draw=e.id) for of, e in zip(known, part, strict=True)]
    return texts, known


def _as_read(request: Request, known: Sequence[Known] | None, text_of_slot: np.ndarray) -> Split:
    """The examples, with the spans of conversations in characters of the rendered text."""
    if request.template is None or known is None:
        return request.part
    placed = [replace(e, spans=known[k].spans) for e, k in zip(request.part, text_of_slot.tolist(), strict=True)]
    return Split(request.part.name, tuple(placed))


def texts_of(part: Split, kind: TaskKind, pairs: str | None) -> list[Text]:
    """The encoder's input, one or two texts per row."""

    def of(e: Example) -> tuple[Text, ...]:
        if e.chat:
            raise UsageError(f"example {e.id!r} is a conversation, which only cache-activations reads; cache it first.")
        if reads_words(e, kind):
            words = tuple(e.words or ())
            return ((e.before, words, e.after) if e.before or e.after else (words,),)
        if e.pair is None:
            return (e.text,)
        return (e.text, e.pair) if pairs == "separate" else ((e.text, e.pair),)

    return [text for e in part for text in of(e)]


def _tokenize(encoder: Encoder, texts: Sequence[Text], progress: Progress, step: int = 4096) -> Tokens:
    """Tokenize all texts, in steps that report progress."""
    parts = []
    for start in range(0, len(texts), step):
        progress("tokenising", start, len(texts))
        parts.append(encoder.tokenize(texts[start : start + step]))
    progress("tokenising", len(texts), len(texts))
    return join(parts)


def _unique(texts: list[Text], known: list[Known] | None) -> tuple[list[Text], list[Known] | None, np.ndarray]:
    """The distinct texts, with what is known of them, and int64 (n,) the index of each text among them."""
    if known is None:
        texts, text_of_slot = unique_texts(texts)
        return texts, None, text_of_slot
    both, text_of_slot = unique_texts([*zip(texts, known, strict=True)])
    return [text for text, _ in both], [of for _, of in both], text_of_slot


def permuted(tokens: Tokens, order: np.ndarray) -> tuple[Tokens, np.ndarray]:
    """The same sequences in another order, and the piece that each piece was before."""
    length = tokens.length.astype(np.int64)
    start = np.cumsum(length) - length
    rows = _ranges(start[order], length[order])
    by_piece = {
        f: getattr(tokens, f)[rows]
        for f in ("token_ids", "special", "type_ids", "word_index", "char_start", "char_end")
    }
    return replace(tokens, length=length[order], truncated=tokens.truncated[order], **by_piece), rows


def _ranges(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """int64: the ``length[i]`` numbers from each ``start[i]`` on, concatenated."""
    return np.arange(int(length.sum())) + np.repeat(start - (np.cumsum(length) - length), length)


def static_of(
    tokens: Tokens,
    row_to_unique: np.ndarray,
    blocks: Sequence[Any],
    level: str | None,
    marks: Marks | None = None,
    labels: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> tuple[dict[str, np.ndarray], dict[str, str], np.ndarray]:
    """The datasets known in advance, further names for some, and the blocks' bounds in token rows."""
    piece = np.concatenate([[0], np.cumsum(tokens.length)])
    names = ("token_ids", "word_index", "char_start", "char_end") if level else ("token_ids",)
    by_piece = {name: getattr(tokens, name).astype(np.int32, copy=False) for name in names}
    static = {
        "/pieces/length": tokens.length.astype(np.int32),
        "/pieces/flags": tokens.special.astype(np.uint8) | (tokens.type_ids.astype(np.uint8) << 1),
        **{f"/pieces/{name}": a for name, a in by_piece.items()},
        "/index/row_to_unique": row_to_unique,
    }
    if tokens.characters is not None:
        static["/pieces/characters"] = tokens.characters
    if marks is not None:
        if marks.chosen is not None:
            static["/pieces/chosen"] = marks.chosen.astype(np.uint8)
        if level:
            by_piece |= {"role": marks.role, "position": marks.position}
            static |= {f"/pieces/{name}": by_piece[name] for name in ("role", "position")}
            static["/role_names"] = strings(ROLES)
    static |= labels
    links: dict[str, str] = {}
    token_start = np.zeros(len(blocks) + 1, dtype=np.int64)
    if level:
        length = tokens.length
        if level == TokenLevel.PIECE:
            links = {f"/index/{name}": f"/pieces/{name}" for name in by_piece}
        else:
            words = tokens.word_index
            if level == TokenLevel.CHOSEN:
                assert marks is not None
                assert marks.chosen is not None
                words = marks.chosen.astype(np.int32) - 1
            first, pieces = token_rows(length, words, TokenLevel(level))
            last = first + pieces - 1
            static |= {f"/index/{name}": a[last if name == "char_end" else first] for name, a in by_piece.items()}
            length = np.diff(np.searchsorted(first, piece))
        start = np.cumsum(length) - length
        static |= {"/index/start": start[row_to_unique], "/index/length": length[row_to_unique].astype(np.int64)}
        token_start = np.array([*(start[b.first] for b in blocks), length.sum()], dtype=np.int64)
    static["/pieces/blocks"] = np.array(
        [
            (b.first, b.last, b.slot_first, b.slot_last, t, u)
            for b, t, u in zip(blocks, token_start, token_start[1:], strict=False)
        ],
        dtype=np.int64,
    )
    return static, links, token_start
