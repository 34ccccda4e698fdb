"""Any transformers AutoModel as an Encoder: the library's own model code, every layer, no padding."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers
from torch import nn
from transformers import AutoConfig, AutoModel

from probekit.errors import ModelError, UsageError
from probekit.models.encoder import Batch, Sink, Text, Tokens
from probekit.models.folder import config_digest, resolve_model, tokenizer_digest, weight_files, weights_digest
from probekit.models.linears import onednn_available, prepack
from probekit.models.packed import OFFSET_TYPES, PACKED, PACKED_TYPES, groups_of, positions_of
from probekit.models.tokens import NO_LIMIT, Tokenizer, first_line, load_tokenizer
from probekit.runtime import Dtype, resolve_device

__all__ = ["HuggingFaceEncoder", "Packing", "load_encoder", "load_model", "relative_error"]

log = logging.getLogger(__name__)

TOLERANCE = {Dtype.FLOAT32: 1e-5, Dtype.FLOAT16: 2e-2, Dtype.BFLOAT16: 1e-1}
"""Relative error of a piece's vector at which the self-check gives up the fast path. Rounding alone gives 1e-6 in
float32; a sequence that saw another, or a wrong position, gives 0.1 and more."""


class Packing(StrEnum):
    """How sequences share a forward pass; never by padding."""

    AUTO = "auto"  # packed where the architecture is known and the self-check agrees, grouped otherwise
    PACKED = "packed"  # all in one row, attention within each
    GROUPED = "grouped"  # only sequences of one length together


class HuggingFaceEncoder:
    """An Encoder (see :mod:`probekit.models.encoder`) around a transformers model; made by :func:`load_encoder`."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer,
        *,
        name: str,
        packed: bool,
        spec: dict[str, Any],
        batch_tokens: int,
    ) -> None:
        self.model, self.tokenizer, self.name = model, tokenizer, name
        self.mixed_lengths, self.batch_tokens, self.max_length = packed, batch_tokens, tokenizer.max_length
        self.blocks = find_blocks(model)
        self.device = next(model.parameters()).device
        self.depth = model.config.num_hidden_layers
        self.width, self.final_norm = self._shape()
        self.layers = (*map(str, range(self.depth + 1)), *(["final_norm"] if self.final_norm else []))
        self.spec = spec | {"layers": list(self.layers), "width": self.width, "max_length": self.max_length}
        self.versions: dict[str, Any] = {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
            "threads": torch.get_num_threads(),
        }

    def tokenize(self, texts: Sequence[Text]) -> Tokens:
        """Word pieces of each text, as this model reads them; raises UsageError for what is not a text."""
        return self.tokenizer(texts)

    def encode(self, batch: Batch, sink: Sink) -> None:
        """Run the model and call ``sink(i, hidden)`` for each layer as soon as it is there.

        ``hidden`` (t, width) is the model's own tensor on its own device: copy what is to be kept, change nothing.
        Raises UsageError for a batch of several lengths where the encoder is not ``mixed_lengths``.
        """
        emitted = 0

        def emit(hidden: torch.Tensor) -> None:
            nonlocal emitted
            sink(emitted, hidden.reshape(-1, hidden.shape[-1]))
            emitted += 1

        with torch.inference_mode(), self._tapped(emit):
            last = self.model(**self._inputs(batch)).last_hidden_state
            if self.final_norm:
                emit(last)

    def _inputs(self, batch: Batch) -> dict[str, Any]:
        shape, extra = (1, -1), {}
        if self.mixed_lengths:
            padding_id = self.model.config.pad_token_id if self.model.config.model_type in OFFSET_TYPES else None
            positions = positions_of(batch.token_ids, batch.length, padding_id)
            extra = {"position_ids": self._tensor(positions, shape), "probekit_groups": groups_of(batch.length)}
        elif (batch.length != batch.length[0]).any():
            raise UsageError(f"{self.name} reads sequences of one length at a time; the batch has several.")
        else:
            shape = (len(batch.length), -1)
        if self.tokenizer.type_ids:
            extra["token_type_ids"] = self._tensor(batch.type_ids, shape)
        return {"input_ids": self._tensor(batch.token_ids, shape)} | extra

    def _tensor(self, array: np.ndarray, shape: tuple[int, int]) -> torch.Tensor:
        tensor = torch.from_numpy(array.astype(np.int64)).view(shape)
        return (
            tensor.pin_memory().to(self.device, non_blocking=True)
            if self.device.type == "cuda"
            else tensor.to(self.device)
        )

    @contextmanager
    def _tapped(self, emit: Callable[[torch.Tensor], None]) -> Iterator[None]:
        """Layer l is what enters block l + 1 (whatever stands between blocks included), the last what leaves the last."""
        calls = 0

        def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            nonlocal calls
            calls += 1
            emit(args[0] if args else kwargs["hidden_states"])

        def after(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if calls == self.depth:
                emit(output[0] if isinstance(output, tuple) else output)

        handles = [block.register_forward_pre_hook(before, with_kwargs=True) for block in self.blocks]
        handles += [block.register_forward_hook(after) for block in self.blocks]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _shape(self) -> tuple[int, bool]:
        """Width, and whether the last hidden state is not what leaves the last block; found by one small run."""
        seen: list[torch.Tensor] = []
        ids = np.array([self.model.config.vocab_size // 2, self.model.config.vocab_size // 3], np.int32)
        batch = Batch(ids, np.zeros(2, np.uint8), np.array([2]))
        with torch.inference_mode(), self._tapped(seen.append):
            last = self.model(**self._inputs(batch)).last_hidden_state
        shapes = {tuple(hidden.shape) for hidden in (*seen, last)}
        if len(seen) != self.depth + 1 or len(shapes) != 1 or last.shape[:2] != (1, 2):
            raise ModelError(
                f"{self.name}: wanted {self.depth + 1} layers of one shape (sequences, pieces, width), got {len(seen)} "
                f"of shapes {sorted(shapes)}; this architecture ({type(self.model).__name__}) is not supported."
            )
        return last.shape[-1], not torch.equal(seen[-1], last)


def load_encoder(
    model: str | Path,
    *,
    dtype: Dtype | str = Dtype.FLOAT32,
    device: str = "auto",
    random_weights: int | None = None,
    revision: str | None = None,
    packing: Packing | str = Packing.AUTO,
    onednn: bool = True,
    compile: bool = False,
    batch_tokens: int | None = None,
) -> HuggingFaceEncoder:
    """Load a model with its tokenizer, from a local folder or the hub.

    random_weights : re-initialise the model with this seed instead of reading weights (Zhang and Bowman 2018's control)
    packing : how sequences share a forward pass; AUTO takes the fast path where a self-check against the stock
        forward, one sequence at a time, agrees
    onednn : on a CPU, lay the weights of linear layers out for oneDNN where it is available
    compile : run each block through ``torch.compile``
    batch_tokens : pieces a batch should hold

    Raises ModelError where the model or its tokenizer cannot be loaded, or weights are missing;
    UsageError for an unknown dtype, device or packing.
    """
    dtype, packing = _choice(Dtype, dtype), _choice(Packing, packing)
    where = torch.device(resolve_device(device))
    folder = resolve_model(model, revision)
    net = load_model(folder, dtype=dtype, device=where, random_weights=random_weights)
    config = net.config
    known = config.model_type in PACKED_TYPES
    if packing is Packing.PACKED and not known:
        raise UsageError(
            f"{model}: packing is not known to hold for {config.model_type} models; use packing='grouped'."
        )
    reader = load_tokenizer(folder)
    tokenizer = Tokenizer(
        reader.backend_tokenizer, _max_length(config, reader), type_ids=(getattr(config, "type_vocab_size", 0) or 0) > 1
    )
    digest = weights_digest(folder) if random_weights is None else f"random:{random_weights}:{config_digest(folder)}"
    spec = {
        "model": str(model),
        "revision": revision,
        "model_type": config.model_type,
        "class": type(net).__name__,
        "weights": digest,
        "tokenizer": tokenizer_digest(folder),
        "dtype": str(dtype),
        "device": where.type,
    }

    def encoder(packed: bool) -> HuggingFaceEncoder:
        fast = ["packed" if packed else "grouped"]
        fast += ["onednn"] if prepacked else []
        fast += ["compiled"] if compile else []
        name = Path(str(model)).name if Path(str(model)).is_dir() else str(model)
        return HuggingFaceEncoder(
            net,
            tokenizer,
            name=name,
            packed=packed,
            spec=spec | {"path": "+".join(fast)},
            batch_tokens=batch_tokens or (2048 if where.type == "cpu" else 16384),
        )

    prepacked, stock = False, config._attn_implementation
    plain = encoder(False)
    checks = _check_batches(plain)
    truth = [all_layers(plain, one) for one in checks]
    prepacked = onednn and where.type == "cpu" and onednn_available(net.dtype) and prepack(net) > 0
    if compile:
        for block in find_blocks(net):
            block.forward = torch.compile(block.forward, dynamic=True)
    if known and packing is not Packing.GROUPED:
        net.set_attn_implementation(PACKED)
        try:
            fast = encoder(True)
            error = relative_error(all_layers(fast, _joined(checks)), torch.cat(truth, 1))
            why = f"relative error {error:.1e} against the stock forward"
        except ModelError as refused:
            error, why = float("inf"), str(refused)
        if error <= TOLERANCE[dtype]:
            fast.versions["self_check"] = error
            return fast
        if packing is Packing.PACKED:
            raise ModelError(f"{model} cannot be run packed ({why}); use packing='grouped'.")
        log.warning("%s is run in groups of equal length, not packed: %s", model, why)
        net.set_attn_implementation(stock)
    slow = encoder(False)
    pairs = zip(checks, truth, strict=True)
    slow.versions["self_check"] = max(relative_error(all_layers(slow, one), right) for one, right in pairs)
    return slow


def load_model(
    folder: Path,
    *,
    dtype: Dtype = Dtype.FLOAT32,
    device: torch.device | str = "cpu",
    random_weights: int | None = None,
    attention: str | None = None,
) -> nn.Module:
    """The stock transformers model of a folder, ready to infer; of an encoder-decoder, its encoder.

    attention : "eager", "sdpa" … as transformers names them; None takes the library's choice
    Raises ModelError where the folder is damaged, needs its own code, or lacks weights that a hidden state depends on.
    """
    kind = getattr(torch, dtype)
    options: dict[str, Any] = {"trust_remote_code": False}
    if attention is not None:
        options["attn_implementation"] = attention
    if random_weights is None:
        weight_files(folder)  # for its plain errors
    try:
        with _quiet(), torch.random.fork_rng(devices=[]):
            config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
            if random_weights is None:
                model, report = AutoModel.from_pretrained(
                    folder,
                    config=config,
                    dtype=kind,
                    use_safetensors=True,
                    local_files_only=True,
                    output_loading_info=True,
                    **options,
                )
                missing = set(report["missing_keys"])
            else:
                torch.manual_seed(random_weights)
                model, missing = AutoModel.from_config(config, dtype=torch.float32, **options), set()
    except (
        Exception
    ) as error:  # transformers raises OSError, ValueError, KeyError, RuntimeError, ImportError and its own
        raise ModelError(f"{folder} cannot be loaded as a model: {first_line(error)}") from error
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
        missing = {key.removeprefix("encoder.") for key in missing if not key.startswith("decoder.")}
    missing = {key for key in missing if "pooler" not in key and key in dict(model.named_parameters())}
    if missing:
        raise ModelError(
            f"{folder} lacks {len(missing)} of the weights that its config.json asks for ({', '.join(sorted(missing)[:5])}"
            f"{', …' if len(missing) > 5 else ''}); they would be random. Do the weights belong to this config?"
        )
    model.config.use_cache = False
    return model.to(device=device, dtype=kind).eval().requires_grad_(False)


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """The transformer blocks of a model, in order (of ALBERT the groups, which are run repeatedly).

    Raises ModelError where there is no list of as many equal modules as the config has layers.
    """
    config = model.config
    depths = {getattr(config, "num_hidden_layers", None), getattr(config, "num_hidden_groups", None)}
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) in depths and len(set(map(type, module))) == 1:
            return list(module)
    raise ModelError(f"{type(model).__name__} has no list of {depths} blocks; this architecture is not supported.")


def relative_error(found: torch.Tensor, right: torch.Tensor) -> float:
    """The largest |found - right| / |right| over all vectors; (…, width) each, in float64."""
    found, right = found.double(), right.double()
    size = right.norm(dim=-1).clamp_min(torch.finfo(torch.float32).tiny)
    return float(((found - right).norm(dim=-1) / size).nan_to_num(float("inf")).max())


def all_layers(encoder: HuggingFaceEncoder, batch: Batch) -> torch.Tensor:
    """Every layer of a batch on the CPU: (layers, t, width)."""
    layers: list[torch.Tensor] = []
    encoder.encode(batch, lambda _, hidden: layers.append(hidden.to("cpu", copy=True)))
    return torch.stack(layers)


def _check_batches(encoder: HuggingFaceEncoder) -> list[Batch]:
    """A few random sequences, one a batch, shortest first, two of them equally long."""
    rng = np.random.default_rng(0)
    lengths = sorted({min(k, encoder.max_length) for k in (2, 5, 9)} | {1})
    lengths = sorted([*lengths, lengths[-1]])
    return [
        Batch(
            rng.integers(encoder.model.config.vocab_size, size=k, dtype=np.int32),
            rng.integers(2, size=k, dtype=np.uint8),
            np.array([k]),
        )
        for k in lengths
    ]


def _joined(batches: Sequence[Batch]) -> Batch:
    return Batch(
        np.concatenate([b.token_ids for b in batches]),
        np.concatenate([b.type_ids for b in batches]),
        np.concatenate([b.length for b in batches]),
    )


def _max_length(config: Any, tokenizer: Any) -> int:
    limit = getattr(config, "max_position_embeddings", None) or NO_LIMIT
    if config.model_type in OFFSET_TYPES:
        limit -= config.pad_token_id + 1
    return int(min(limit, tokenizer.model_max_length, NO_LIMIT))


def _choice(kind: type[StrEnum], value: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise UsageError(f"unknown {kind.__name__.lower()} {str(value)!r}; there are {', '.join(kind)}.") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bar and no warnings of transformers: what matters is raised."""
    from transformers.utils import logging as theirs

    level, bars = theirs.get_verbosity(), theirs.is_progress_bar_enabled()
    theirs.set_verbosity_error()
    theirs.disable_progress_bar()
    try:
        yield
    finally:
        theirs.set_verbosity(level)
        if bars:
            theirs.enable_progress_bar()
