"""``probekit train`` and ``probekit evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["evaluate_command", "train_command"]


def _option(name: str, help: str, **more: Any) -> Any:
    return typer.Option(f"--{name}", help=help, **more)


def train_command(
    task: Annotated[str, _option("task", "Name of a task (see *probekit tasks*), or a TOML file.")],
    model: Annotated[
        str,
        _option(
            "model",
            "Hub id, or a local folder with config.json and safetensors; elmo:OPTIONS,WEIGHTS or skip-thoughts:FOLDER "
            "for published files.",
        ),
    ],
    out: Annotated[Path, _option("out", "Folder of the run.", metavar="RUN")],
    regime: Annotated[str, _option("regime", "fine-tune, or feature-extraction (frozen encoder).")] = "fine-tune",
    data_dir: Annotated[Path | None, _option("data-dir", "Folder with the task's files; the hub without it.")] = None,
    train: Annotated[str, _option("train", "Split to learn from.")] = "train",
    dev: Annotated[str, _option("dev", "Split to evaluate on after each epoch.")] = "dev",
    test: Annotated[str | None, _option("test", "Split to evaluate on once, at the end.")] = None,
    limit: Annotated[int | None, _option("limit", "Learn from the first N examples only.")] = None,
    head: Annotated[
        str,
        _option(
            "head",
            "auto, linear, bcn; of pairs esim, bi-attention, of pairs read apart pair, rating; of word tags softmax, "
            "crf, bilstm, bilstm-crf. auto fine-tunes with linear or softmax (of ELMo and Skip-thoughts, bi-attention "
            "for pairs and crf for spans), and extracts with the paper's: bcn, esim, bilstm-crf.",
        ),
    ] = "auto",
    pooling: Annotated[
        str, _option("pooling", "Of linear, pair and rating: auto, pooler, first, last, mean, mean-all or max.")
    ] = "auto",
    pairs: Annotated[
        str,
        _option(
            "pairs",
            "auto (as head and model read them), joint (esim and bi-attention cut it in two) or separate.",
        ),
    ] = "auto",
    hidden_size: Annotated[int | None, _option("hidden-size", "Of the head.")] = None,
    dropout: Annotated[float | None, _option("dropout", "Of the head.")] = None,
    layers: Annotated[
        str | None, _option("layers", "Layers to mix in feature extraction, such as 0,6,12; all without it.")
    ] = None,
    mix: Annotated[
        bool, _option("mix", "Fine-tune with a head that reads a learned mix of all layers, not the last one.")
    ] = False,
    layer_norm: Annotated[bool, _option("layer-norm", "Normalise each layer before the mix.")] = False,
    epochs: Annotated[int | None, _option("epochs", "3 for fine-tuning, 20 for feature extraction.")] = None,
    batch_size: Annotated[int, _option("batch-size", "Examples in a batch.")] = 32,
    accumulation: Annotated[int, _option("accumulation", "Batches before each step.")] = 1,
    learning_rate: Annotated[
        float | None,
        _option(
            "learning-rate",
            "Its peak: 5e-5 for fine-tuning; 1e-3 for feature extraction, 1e-2 with heads without a hidden layer.",
        ),
    ] = None,
    weight_decay: Annotated[
        float | None, _option("weight-decay", "Not of biases and norms: .01 for fine-tuning, else 0.")
    ] = None,
    optimizer: Annotated[str, _option("optimizer", "adamw, or bert-adamw (without bias correction).")] = "adamw",
    schedule: Annotated[str, _option("schedule", "linear, cosine, constant, bert or slanted-triangular.")] = "linear",
    warmup: Annotated[float, _option("warmup", "Share of the steps.")] = 0.1,
    cut: Annotated[float, _option("cut", "Of the slanted triangle: share of the steps that rise.")] = 0.1,
    ratio: Annotated[float, _option("ratio", "Of the slanted triangle: highest over lowest rate.")] = 32.0,
    layer_factor: Annotated[
        float, _option("layer-factor", "Discriminative rates: each layer's over that of the one above, such as 0.4.")
    ] = 1.0,
    unfreezing: Annotated[
        str, _option("unfreezing", "all, top (frozen encoder), gradual, chain-thaw or sequential.")
    ] = "all",
    max_grad_norm: Annotated[float, _option("max-grad-norm", "Clip gradients; 0 for not at all.")] = 1.0,
    dtype: Annotated[str, _option("dtype", "float32, or mixed precision in bfloat16 or float16.")] = "float32",
    group: Annotated[bool, typer.Option("--group/--no-group", help="Batch texts of like length together.")] = True,
    gradient_checkpointing: Annotated[
        bool, _option("gradient-checkpointing", "Less memory for more time, for large encoders.")
    ] = False,
    keep: Annotated[str, _option("keep", "Weights of the best epoch on dev, or of the last.")] = "best",
    patience: Annotated[int | None, _option("patience", "End after so many epochs without a better one.")] = None,
    save_at: Annotated[str, _option("save-at", "Checkpoints: steps such as 10,20,50, or epochs, or log-spaced.")] = "",
    seed: Annotated[int, _option("seed", "Of initial weights, order and dropout.")] = 0,
    random_weights: Annotated[
        int | None, _option("random-weights", "Control: begin with a re-initialised encoder.", metavar="SEED")
    ] = None,
    max_length: Annotated[int | None, _option("max-length", "Most pieces of a sequence.")] = None,
    model_name: Annotated[str | None, _option("model-name", "Name in tables.")] = None,
    run_name: Annotated[str | None, _option("run-name", "Name of the run in tables; its folder's without it.")] = None,
    revision: Annotated[str | None, _option("revision", "Branch, tag or commit of a hub model.")] = None,
    caches: Annotated[
        Path | None, _option("caches", "Folder for the caches of feature extraction; data_cache/ without it.")
    ] = None,
    device: Annotated[str, _option("device", "auto, cpu, cuda, cuda:N or mps.")] = "auto",
    report_to: Annotated[str, _option("report-to", "tensorboard, wandb …, as transformers names them.")] = "none",
    overwrite: Annotated[bool, _option("overwrite", "Replace another run.")] = False,
) -> None:
    """Fine-tune a model on a task, or train a task model on its frozen layers, which are cached once.

    RUN becomes a folder with the weights (a model folder that every command reads, of a fine-tuned encoder), a card
    (probekit.json) and metrics along training (rows.parquet). The same command again shows a finished run, and takes
    an interrupted one up after its last whole epoch.

    Examples:

        probekit train --task mrpc --model bert-base-uncased --out runs/mrpc

        probekit train --task mrpc --model bert-base-uncased --regime feature-extraction --out runs/mrpc-esim

        probekit train --task cola --model bert-base-uncased --save-at log-spaced --out runs/cola

        probekit train --task wnut17 --model roberta-base --head crf --dtype bfloat16 --out runs/wnut

        probekit train --task sst2 --model bert-base-uncased --schedule slanted-triangular --unfreezing gradual --layer-factor 0.4 --epochs 15 --out runs/ulmfit
    """  # noqa: E501
    from probekit.adaptation.train import train as run
    from probekit.cli.progress import bar
    from probekit.runtime import processes

    chosen = None if layers is None else [part.strip() for part in layers.split(",")]
    with bar() as progress:
        done = run(
            task, model, out, regime=regime, data_dir=data_dir, splits=(train, dev), test=test, limit=limit,
            revision=revision, random_weights=random_weights, max_length=max_length, model_name=model_name,
            run_name=run_name, caches=caches, layers=chosen, device=device,
            report_to=report_to, overwrite=overwrite, progress=progress, head=head, pooling=pooling, pairs=pairs,
            hidden_size=hidden_size, dropout=dropout, mix=mix, layer_norm=layer_norm, epochs=epochs,
            batch_size=batch_size, accumulation=accumulation, learning_rate=learning_rate, weight_decay=weight_decay,
            optimizer=optimizer, schedule=schedule, warmup=warmup, cut=cut, ratio=ratio, layer_factor=layer_factor,
            unfreezing=unfreezing, max_grad_norm=max_grad_norm, dtype=dtype, group=group,
            gradient_checkpointing=gradient_checkpointing, keep=keep, patience=patience, save_at=save_at, seed=seed,
        )  # fmt: skip
    if processes()[0]:  # of torchrun's processes the first speaks
        return
    card = done.card
    typer.echo(str(done.path))
    typer.echo(f"{card['task']}, {card['model']}, {card['regime']} with the head {card['head']['head']}")
    typer.echo(
        f"{card['splits'][1]}: {_numbers(done.metrics)} (step {card['step']} of {card['total_steps']}, kept: {keep})"
    )
    if done.test is not None:
        typer.echo(f"{card['splits'][2]}: {_numbers(done.test)}")
    if card["layers"]:
        weights = done.rows[done.rows["kept"] & (done.rows["metric"] == "mix-weight")]
        told = zip(weights["layer_name"], weights["value"], strict=True)
        typer.echo("layers: " + ", ".join(f"{name} {weight:.3f}" for name, weight in told))
    typer.echo(f"{card['seconds']:.1f} s of training and evaluation")


def evaluate_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run, or one of its checkpoints.")],
    task: Annotated[
        list[str] | None,
        _option("task", "Task with the labels of the one that it learned, which it is without it; may be repeated."),
    ] = None,
    split: Annotated[str, _option("split", "Split of the task.")] = "test",
    data_dir: Annotated[Path | None, _option("data-dir", "Folder with the task's files; the hub without it.")] = None,
    cache: Annotated[
        Path | None,
        _option("cache", "For feature extraction: a cache of the same model, instead of a task.", metavar="CACHE.h5"),
    ] = None,
    model: Annotated[
        str | None, _option("model", "For feature extraction: where the frozen model is, if it was moved.")
    ] = None,
    caches: Annotated[
        Path | None, _option("caches", "Folder for the caches of feature extraction; data_cache/ without it.")
    ] = None,
    out: Annotated[Path | None, _option("out", "Write the rows: .parquet or .csv, an evidence card beside it.")] = None,
    batch_size: Annotated[int, _option("batch-size", "Examples in a batch.")] = 32,
    device: Annotated[str, _option("device", "auto, cpu, cuda, cuda:N or mps.")] = "auto",
) -> None:
    """Evaluate what probekit train has left on other examples.

    Shows the metrics, and of each but the loss the 95 % interval of 1,000 bootstrap samples of the examples (of whole
    sentences where words are tagged). Task and model are found where training found them.

    Examples:

        probekit evaluate runs/mrpc --split test

        probekit evaluate runs/fiction --task mnli:travel --task mnli:slate --split dev-matched --out transfer.parquet

        probekit evaluate runs/mrpc-esim --cache mrpc.test.h5
    """
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.adaptation.runs.evaluation import evaluation_rows, say_of_run
    from probekit.adaptation.runs.folder import read_card
    from probekit.cli.progress import bar
    from probekit.errors import UsageError
    from probekit.rows import check_out, evidence, write_rows
    from probekit.tasks import load_task

    check_out(out)
    card = read_card(run)
    if cache is not None and card["regime"] == "fine-tune":
        raise UsageError(f"{run} is a fine-tuned model, which reads text; give --task instead of --cache.")
    if cache is not None and task:
        raise UsageError("--cache and --task both say what to evaluate on; give one of them.")
    source = {"task": card["task"], "data_dir": None} | (card.get("source") or {})  # none of a Task made in Python
    if not task:
        task, data_dir = [source["task"]], data_dir or source["data_dir"]
    tables = []
    with bar() as progress:
        for name in [cache] if cache else dict.fromkeys(task):
            read = name if cache else load_task(str(name), data_dir=data_dir)
            said = say_of_run(
                run, read, split, model=model, caches=caches, batch_size=batch_size, device=device, progress=progress
            )
            called = getattr(read, "name", said.target.task)
            if cache:
                with ActivationCache(cache) as opened:
                    called, split = opened.spec["task"], opened.spec["split"]
            typer.echo(f"{called} {split}, {len(said.ids):,} examples: {_numbers(said.metrics)}")
            tables.append(evaluation_rows(run, said, str(called), split))
            for row in tables[-1].to_dict("records"):
                typer.echo(f"{row['metric']}: 95 % interval {row['ci_low']:.4f} to {row['ci_high']:.4f}")
    if out is not None:
        arguments = {"run": str(run), "task": task, "split": split, "cache": None if cache is None else str(cache)}
        typer.echo(write_rows(pd.concat(tables, ignore_index=True), out, evidence(arguments=arguments)))


def _numbers(metrics: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
