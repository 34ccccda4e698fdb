"""How much a model's hidden states depend on the batch, the padding and the attention implementation.

probekit never pads, and its hidden states should be the same bits for a text alone and in any batch; those of many
models' own forward passes are not. A certificate gives the deviation of each, measured with your software and hardware.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import ceil, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations.options import CertifyOptions
from probekit.constraint import Count, File
from probekit.errors import DataError, ModelError, UsageError
from probekit.models.encoder import Batch, Encoder, Text, Tokens, begin_states
from probekit.public import public
from probekit.runtime import Dtype, torch_threads
from probekit.sites import FINAL_NORM, RESIDUAL, Site

if TYPE_CHECKING:
    import torch

    from probekit.activations.foreign.against import Comparison
    from probekit.models.bilstm.encoder import BiLSTMEncoder
    from probekit.models.elmo.encoder import ElmoEncoder
    from probekit.models.skip_thoughts.encoder import SkipThoughtsEncoder
    from probekit.models.transformers.encoder import HuggingFaceEncoder

TEXTS: tuple[Text, ...] = (
    "Yes.",
    "Cats sleep.",
    "The committee has not decided yet.",
    "It was, for the most part, a quiet afternoon.",
    "Nobody who saw the film at the time could have guessed how it would be remembered.",
    ("A man is playing a guitar.", "Somebody plays an instrument on the stage."),
    "The keys to the old cabinet in the corner of the room were lost long before the house was sold to the two "
    "brothers from the coast, who never asked what had been in it and never tried to open it.",
    "In 1994, 3.5 % of them (about 70,000) moved north; the rest stayed.",
    "Why not?",
    "The teacher that the children like sees the dog.",
)
"""Default texts for a certificate: short and long ones, a pair, digits and punctuation."""


@dataclass(frozen=True, slots=True)
class Line:
    """One comparison.

    Attributes
    ----------
    check : str
        Its name.
    what : str
        The two results that are compared.
    absolute : float
        The largest absolute difference between any two numbers in any layer.
    relative : float
        The largest |difference| / |vector| for the vector of any piece in any layer.
    layer : str
        The layer with the largest relative deviation; empty if there is none.
    verdict : str
        "bit-identical", "within 1e-6", "depends on …", or the reason why it could not be measured.
    passed : bool, optional
        Whether probekit's guarantee holds; None if the comparison is only for information.
    """

    check: str
    what: str
    absolute: float
    relative: float
    layer: str
    verdict: str
    passed: bool | None = None


@dataclass(frozen=True, slots=True)
class Certificate:
    """Comparisons, the texts they were made on, and their results; ``to_json()`` returns plain values."""

    model: str
    spec: dict[str, Any]
    versions: dict[str, Any]
    texts: int
    pieces: int
    lines: tuple[Line, ...]

    @property
    def passed(self) -> bool:
        """Whether all of probekit's guarantees hold."""
        return all(line.passed is not False for line in self.lines)

    @property
    def verdict(self) -> str:
        """One sentence: what holds for the stored numbers, and on what the model's own forward pass depends."""
        broken = [line for line in self.lines if line.passed is False]
        dependences = [line for line in self.lines if line.passed is None and line.verdict.startswith("depends")]
        stock = [line.verdict for line in dependences if line.check != "state"]
        ours = "; ".join(f"{line.check}: {line.verdict}" for line in broken) or self.lines[0].verdict + " in any batch"
        if len(stock) < len(dependences):
            ours += ", each with an empty state"
        return ours + (f" (the stock forward {', '.join(dict.fromkeys(stock))})" if stock else "")

    def to_json(self) -> dict[str, Any]:
        """The certificate as JSON values, including verdicts."""
        return asdict(self) | {"passed": self.passed, "verdict": self.verdict}


@public(options=CertifyOptions)
def certify(
    model: str | Path | Encoder,
    /,
    texts: File | Sequence[Text] | None = None,
    *,
    against: File | None = None,
    layers: tuple[str, ...] | None = None,
    limit: Count = 8,
    options: CertifyOptions,
) -> Certificate | Comparison:
    """Measure how much a model's hidden states depend on batch size, padding and attention implementation.

    The model is loaded twice in addition to the encoder. For ELMo, a line gives the deviation when the state is carried
    from sentence to sentence. On the command line, the exit status is 1 if the states that probekit stores depend on
    any of them.

    With ``against``, a sample of the activations that another program wrote is recomputed, from proven sites, and each
    array is said to be what its name says, or which mistake explains it; exit status 1 if one is not.

    Parameters
    ----------
    model : str, path or Encoder
        Hub id or folder of a model; in Python also a loaded encoder.
    texts : path or sequence of Text, optional
        A file of texts to measure on, one a line; texts without pieces are left out.
    against : path, optional
        Activations that another program wrote: safetensors of vLLM's ExampleHiddenStatesConnector, .npz or .safetensors
        with an array for each site, or a folder of SAELens.
    layers : tuple of str, optional
        The layers in vLLM's files, or of one array hidden_states, which do not name them, ascending: 1,2,3,4. The
        default finds them.
    limit : int, default 8
        With ``against``: how many texts to recompute.
    options : CertifyOptions
        ``dtype``, ``device`` …; you can also pass them as keyword arguments.

    Returns
    -------
    Certificate or Comparison
        ``passed`` is True if all of probekit's guarantees hold; with ``against``, if all arrays are what they are said
        to be.

    Raises
    ------
    ModelError
        If the model cannot be loaded.
    DataError
        If the file cannot be read.
    UsageError
        If no text has a piece.

    Examples
    --------
    >>> probekit.certify("bert-base-uncased", dtype="bfloat16").passed  # doctest: +SKIP
    True

    On the command line::

        probekit certify bert-base-uncased --dtype bfloat16
        probekit certify Qwen/Qwen3-8B --against hidden_states/ --layers 1,2,3,4 --dtype bfloat16
        probekit certify gpt2 --against activations.npz --limit 32 --json
    """
    from probekit.activations.foreign.against import compare, said_layers
    from probekit.activations.foreign.opening import open_source
    from probekit.models.loading import load_encoder

    if (against is None and (layers is not None or limit != 8)) or (against is not None and texts is not None):
        raise UsageError("--layers and --limit are for --against, whose file has its own texts; --texts is without it.")
    source = None if against is None else open_source(against, said_layers(layers))
    encoder = load_encoder(model, **asdict(options)) if isinstance(model, (str, Path)) else model
    if source is not None:
        return compare(encoder, source, limit)
    return _certificate(encoder, TEXTS if texts is None else _lines(texts) if isinstance(texts, (str, Path)) else texts)


def _certificate(encoder: Encoder, texts: Sequence[Text]) -> Certificate:
    """The comparisons that a model allows, on some texts."""
    from probekit.models.bilstm.encoder import BiLSTMEncoder
    from probekit.models.conversion import reads_apart
    from probekit.models.elmo.encoder import ElmoEncoder
    from probekit.models.skip_thoughts.encoder import SkipThoughtsEncoder
    from probekit.models.transformers.encoder import TOLERANCE, HuggingFaceEncoder, all_layers

    if "sites" in encoder.spec:
        raise UsageError(f"certify compares layers; load {encoder.name} without sites (probekit sites proves these).")
    if reads_apart(encoder.spec.get("model_type", "")):
        texts = [
            sentence for text in texts for sentence in (text if isinstance(text, tuple) and len(text) == 2 else [text])
        ]
    alone = _alone(encoder.tokenize(texts))
    if not alone:
        raise UsageError(f"none of the {len(texts)} texts has a piece that {encoder.name} can read; give other texts.")
    tolerance = TOLERANCE[Dtype(encoder.spec["dtype"])]
    alone_states = [all_layers(encoder, batch) for batch in alone]
    lines = [
        _batch_line(encoder, alone, alone_states, tolerance, every := range(len(encoder.sites))),
        *_nonfinite_line(_names(encoder), alone_states),
        *_layers_line(encoder, alone, alone_states, every),
    ]
    if isinstance(encoder, HuggingFaceEncoder):
        kept_sites = _own_layers(encoder)
        names, ours = [str(encoder.sites[i]) for i in kept_sites], [hidden[kept_sites] for hidden in alone_states]
        lines += _stock_lines(encoder, alone, names, ours, tolerance)
    elif isinstance(encoder, (BiLSTMEncoder, ElmoEncoder, SkipThoughtsEncoder)):
        lines += _older_lines(encoder, alone, alone_states, tolerance)
    if isinstance(encoder, ElmoEncoder):
        lines.append(_state_line(encoder, alone, alone_states, tolerance))
    pieces = sum(int(batch.length[0]) for batch in alone)
    return Certificate(encoder.name, dict(encoder.spec), dict(encoder.versions), len(alone), pieces, tuple(lines))


def _lines(path: str | Path) -> list[Text]:
    try:
        return [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read as UTF-8 text ({error})", file=Path(path)) from error


@torch_threads(1)  # like the threads that fill a cache
def quick_certificate(
    encoder: Encoder, texts: Sequence[Text] | None = None, sites: Collection[Site] | None = None, *, most: int = 8
) -> dict[str, Any]:
    """The certificate in a cache's spec: a few short texts run alone and together, as JSON values.

    It is about the ``sites`` that the cache keeps, by default all. Uses the first ``most`` of ``texts`` with at most 64
    pieces, or the built-in texts if there are none.
    """
    from probekit.models.transformers.encoder import TOLERANCE, all_layers

    if imported := encoder.spec.get("imported"):
        return _imported_certificate(imported["certified"])
    given = encoder.tokenize(list(texts[: 4 * most])) if texts else encoder.tokenize([])
    alone = [batch for batch in _alone(given) if batch.length[0] <= 64][:most]
    alone = alone or _alone(encoder.tokenize([text for text in TEXTS if isinstance(text, str)]))[:most]
    kept = [i for i, site in enumerate(encoder.sites) if sites is None or site in sites]
    right = [all_layers(encoder, batch, wanted=kept) for batch in alone]
    tolerance = TOLERANCE[Dtype(encoder.spec.get("dtype", "float32"))]
    lines = [
        _batch_line(encoder, alone, right, tolerance, kept),
        *_nonfinite_line([str(encoder.sites[i]) for i in kept], right),
    ]
    lines += _layers_line(encoder, alone, right, kept) + _sites_line(encoder)
    certificate = Certificate(encoder.name, {}, {}, len(alone), sum(int(b.length[0]) for b in alone), tuple(lines))
    lines_by_check: dict[str, Any] = {
        line.check: {"relative": line.relative, "verdict": line.verdict} for line in lines
    }
    verdict = certificate.verdict
    if size := begin_states(encoder):
        verdict = (
            f"depends on what was read before: the state is carried on in batches of {size} ({verdict} without it)"
        )
    return lines_by_check | {"texts": len(alone), "passed": certificate.passed, "verdict": verdict}


def _imported_certificate(certified: dict[str, Any] | None) -> dict[str, Any]:
    """The certificate of numbers that another program computed, in batches that are not known."""
    if certified is None:
        return {"texts": 0, "passed": False, "verdict": "imported, and not certified"}
    verdict = f"imported; {certified['texts']} texts recomputed, within {certified['relative']:.1e}"
    return {"texts": certified["texts"], "passed": True, "verdict": verdict}


def _layers_line(encoder: Encoder, alone: list[Batch], right: list[torch.Tensor], kept: Sequence[int]) -> list[Line]:
    """Compare the ``kept`` sites with the ``hidden_states`` that the same model returns, if it does."""
    if not hasattr(encoder, "own_hidden_states") or "sites" in encoder.spec:  # those are proven in other ways
        return []
    own = {site: k for k, site in enumerate(_own_layers(encoder))}
    both = [(i, own[site]) for i, site in enumerate(kept) if site in own]
    if not both:
        return []
    names, ours = [str(encoder.sites[kept[i]]) for i, _ in both], [hidden[[i for i, _ in both]] for hidden in right]
    hidden_states_list = [encoder.own_hidden_states(batch)[[k for _, k in both]] for batch in alone]
    what = "probekit and hidden_states of the same run"
    return [_line("layers", what, names, ours, hidden_states_list, 0.0, "how layers are counted")]


def _sites_line(encoder: Encoder) -> list[Line]:
    """The largest error of the identities that prove the sites of an encoder, if it reads chosen ones."""
    if (proofs := getattr(encoder, "proofs", None)) is None:
        return []
    worst = max((proofs.proofs[site] for site in encoder.sites), key=lambda proof: proof.error or 0.0)
    error = worst.error or 0.0
    return [Line("sites", worst.identity, error, error, worst.name, "proven", passed=True)]


def _older_lines(
    encoder: BiLSTMEncoder | ElmoEncoder | SkipThoughtsEncoder,
    alone: list[Batch],
    right: list[torch.Tensor],
    tolerance: float,
) -> Iterator[Line]:
    """Compare with the loaded model, for each text alone and padded."""
    from probekit.models.transformers.stock import load_model

    random, device = encoder.spec["random_weights"], encoder.spec["device"]
    stock = load_model(encoder.folder, dtype=Dtype(encoder.spec["dtype"]), device=device, random_weights=random)
    names, longest = _names(encoder), int(alone[-1].length[0])
    truth = [encoder.own_hidden_states(one, stock) for one in alone]
    what = "probekit and the stock model, one text at a time"
    yield _line("stock", what, names, right, truth, tolerance, "the fast path")
    padded = [encoder.own_hidden_states(one, stock, longest) for one in alone]
    what = "stock model: alone and padded on the right"
    yield _line("padding right", what, names, padded, truth, tolerance, "right padding", ours=False)


def _state_line(encoder: ElmoEncoder, alone: list[Batch], right: list[torch.Tensor], tolerance: float) -> Line:
    """Compare an empty state with that of the texts before."""
    import torch

    state, carried = None, []
    for batch in alone:
        layers, inner, state = encoder.read(batch, state)
        carried.append(torch.stack([layer[inner].cpu() for layer in layers]))
    what = "each text with an empty state and with that of the texts before it"
    depends = "what was read before, where the state is carried on (--stateful)"
    return _line("state", what, _names(encoder), carried, right, tolerance, depends, ours=False)


def _nonfinite_line(layers: Sequence[str], hidden: list[torch.Tensor]) -> list[Line]:
    """A line if a layer holds NaN or infinity; none if all numbers are finite."""
    bad = [layer for i, layer in enumerate(layers) if not all(bool(states[i].isfinite().all()) for states in hidden)]
    if not bad:
        return []
    nan = float("nan")
    return [
        Line(
            "finite",
            "hidden states, text by text",
            nan,
            nan,
            bad[0],
            f"NaN or infinity in {', '.join(bad)}",
            passed=False,
        )
    ]


def _batch_line(
    encoder: Encoder, alone: list[Batch], right: list[torch.Tensor], tolerance: float, kept: Sequence[int]
) -> Line:
    """Compare texts alone with all in one batch, or (for one length at a time) with its own reverse."""
    from probekit.models.transformers.encoder import all_layers

    def read(*batches: Batch) -> torch.Tensor:
        return all_layers(encoder, _join(batches), wanted=kept)

    if encoder.mixed_lengths:
        found = list(read(*alone).split([int(batch.length[0]) for batch in alone], dim=1))
    else:
        found = [read(_reverse(batch), batch)[:, int(batch.length[0]) :] for batch in alone]
    names = [str(encoder.sites[i]) for i in kept]
    return _line("batch", "each text alone and in a batch", names, found, right, tolerance, "the batch")


def _stock_lines(
    encoder: HuggingFaceEncoder, alone: list[Batch], names: list[str], ours: list[torch.Tensor], tolerance: float
) -> Iterator[Line]:
    """Compare with the model's own forward pass: plain, with other attention code, and padded on each side."""
    stock = _Stock(encoder, None)
    truth = [stock.alone(one) for one in alone]
    yield _line(
        "stock", "probekit and the stock model, one text at a time", names, ours, truth, tolerance, "the fast path"
    )
    for side in ("right", "left"):
        what = f"stock model: alone and in one batch padded on the {side}"
        yield _line(
            f"padding {side}", what, names, stock.padded(alone, side), truth, tolerance, f"{side} padding", ours=False
        )
    other = "eager" if stock.attention != "eager" else "sdpa"
    what = f"stock model: {stock.attention} and {other} attention, one text at a time"
    try:
        found = [_Stock(encoder, other).alone(one) for one in alone]
    except ModelError:
        yield Line("attention", what, 0.0, 0.0, "", f"has no {other} attention", None)
    else:
        yield _line("attention", what, names, found, truth, tolerance, "the attention's code", ours=False)


class _Stock:
    """The transformers model for an encoder, run as users of the library run it."""

    def __init__(self, encoder: HuggingFaceEncoder, attention: str | None) -> None:
        from probekit.models.transformers.stock import load_model

        self.type_ids = encoder.tokenizer.type_ids
        self.model = load_model(
            encoder.folder,
            dtype=Dtype(encoder.spec["dtype"]),
            device=encoder.device,
            random_weights=encoder.spec["random_weights"],
            attention=attention,
        )
        self.attention: str = self.model.config._attn_implementation

    def alone(self, one: Batch) -> torch.Tensor:
        return self._run(one.token_ids[None], one.type_ids[None], None)[:, 0]

    def padded(self, alone: list[Batch], side: str) -> list[torch.Tensor]:
        longest = max(int(one.length[0]) for one in alone)
        pad = self.model.config.pad_token_id
        ids = np.full((len(alone), longest), 0 if pad is None else pad)
        types, mask = np.zeros_like(ids), np.zeros_like(ids)
        where = [
            slice(0, int(b.length[0])) if side == "right" else slice(longest - int(b.length[0]), longest) for b in alone
        ]
        for row, (one, columns) in enumerate(zip(alone, where, strict=True)):
            ids[row, columns], types[row, columns], mask[row, columns] = one.token_ids, one.type_ids, 1
        found = self._run(ids, types, mask)
        return [found[:, row, columns] for row, columns in enumerate(where)]

    def _run(self, ids: np.ndarray, types: np.ndarray, mask: np.ndarray | None) -> torch.Tensor:
        import torch

        inputs = {"input_ids": ids} | ({} if mask is None else {"attention_mask": mask})
        inputs |= {"token_type_ids": types} if self.type_ids else {}
        tensors = {k: torch.tensor(v.astype(np.int64), device=self.model.device) for k, v in inputs.items()}
        with torch.inference_mode():
            return torch.stack([h.to("cpu") for h in self.model(**tensors, output_hidden_states=True).hidden_states])


def _line(
    check: str, what: str, names: list[str], found: list[torch.Tensor], right: list[torch.Tensor],
    tolerance: float, depends: str, *, ours: bool = True,
) -> Line:  # fmt: skip
    """Compare lists of (layers, t, width), one tensor per text."""
    from probekit.models.transformers.encoder import relative_error

    absolute = max(
        float((a.double() - b.double()).abs().nan_to_num(0.0).max()) for a, b in zip(found, right, strict=True)
    )
    errors = [max(relative_error(a[i], b[i]) for a, b in zip(found, right, strict=True)) for i in range(len(names))]
    worst = int(np.argmax(errors))
    passed = errors[worst] <= tolerance
    verdict = f"within 1e{ceil(log10(errors[worst]))}" if passed and errors[worst] else f"depends on {depends}"
    if absolute == 0 and errors[worst] == 0:
        return Line(check, what, 0.0, 0.0, "", "bit-identical", passed if ours else None)
    return Line(check, what, absolute, errors[worst], names[worst], verdict, passed if ours else None)


def _names(encoder: Encoder) -> list[str]:
    return [*map(str, encoder.sites)]


def _own_layers(encoder: Encoder) -> list[int]:
    """Indices of the sites in transformers' ``hidden_states``: with a final norm, all except layer L."""
    last = max((site.layer or 0 for site in encoder.sites if site.name == RESIDUAL), default=0)
    left_out = Site(RESIDUAL, last) if FINAL_NORM in encoder.sites else None
    return [i for i, site in enumerate(encoder.sites) if site != left_out]


def _alone(tokens: Tokens) -> list[Batch]:
    """One batch per sequence with pieces, shortest first."""
    start = np.cumsum(tokens.length) - tokens.length
    order = [int(i) for i in np.argsort(tokens.length, kind="stable") if tokens.length[i]]
    rows = [slice(start[i], start[i] + tokens.length[i]) for i in order]
    return [
        Batch(tokens.token_ids[r], tokens.type_ids[r], tokens.length[[i]], tokens.characters)
        for i, r in zip(order, rows, strict=True)
    ]


def _join(batches: Sequence[Batch]) -> Batch:
    ids, types, length = (np.concatenate([getattr(b, f) for b in batches]) for f in ("token_ids", "type_ids", "length"))
    return Batch(ids, types, length, batches[0].characters)


def _reverse(one: Batch) -> Batch:
    return Batch(one.token_ids[::-1], one.type_ids[::-1], one.length, one.characters)
