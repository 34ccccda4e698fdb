"""Scores of sentences by `probekit pairs` beside minicons and beside float64: differences, sentences per CPU second.

    pip install minicons==0.3.33
    python benchmarks/pairs_minicons.py MODEL --pairs blimp --data-dir blimp/data --limit 10

MODEL is a folder with a causal or masked language model. Both sides score the same sentences, one after the other in
each of a few parts, in one process; times are CPU seconds of the process. minicons gets batches of 32 sentences sorted
by length, which saves it padding; ours sorts by itself. Each side loads its own copy of the model, which is not timed.
A third copy scores the sentences one by one in float64: what either side is away from it is the rounding of float32.
A causal model whose tokenizer adds the piece for the beginning by itself gets no second one from minicons.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from cache import table

from probekit.models.scoring import Score, Scorer, load_scorer
from probekit.tasks.pairs import load_pairs

PARTS = 4
BATCH = 32
Scores = Callable[[list[str]], list[float]]


def minicons_scores(folder: str, scorer: Scorer) -> dict[Score, Scores]:
    """What scores a batch of sentences as minicons does, for each score of a model."""
    import transformers

    for name in ("AutoModelForVision2Seq", "AutoModelForVisionTextToText"):  # transformers 5 has no such classes
        if not hasattr(transformers, name):
            setattr(transformers, name, None)
    from minicons.scorer import IncrementalLMScorer, MaskedLMScorer

    if not scorer.causal:
        masked = MaskedLMScorer(folder, "cpu")
        if not hasattr(masked.tokenizer, "batch_encode_plus"):  # nor this name of it
            masked.tokenizer.batch_encode_plus = masked.tokenizer.__call__
        return {
            score: lambda some, metric=metric: masked.sequence_score(some, reduction=_sum, PLL_metric=metric)
            for score, metric in ((Score.PLL, "original"), (Score.PLL_WORD, "within_word_l2r"))
        }
    causal, bos = IncrementalLMScorer(folder, "cpu"), scorer.tokenizer.bos_token_id
    added = bos is not None and scorer.tokenizer("a")["input_ids"][0] != bos
    return {
        score: lambda some, reduction=reduction: causal.sequence_score(some, reduction=reduction, bos_token=added)
        for score, reduction in ((Score.LOG_PROBABILITY, _sum), (Score.MEAN, _mean))
    }


def _sum(nats: Any) -> float:
    return float(nats.double().sum())


def _mean(nats: Any) -> float:
    return float(nats.double().mean())


def compared(folder: str, texts: Sequence[str]) -> list[dict[str, Any]]:
    """For each score: the largest differences, from each other and from float64, and the CPU seconds of both sides."""
    scorer, found = load_scorer(folder, device="cpu"), []
    exact = load_scorer(folder, device="cpu", batch_tokens=1)
    exact.head.model.double()
    truth = exact.score([text for part in range(PARTS) for text in sorted(texts[part::PARTS], key=len)])
    for score, theirs in minicons_scores(folder, scorer).items():
        seconds, mine, other = [0.0, 0.0], list[Any](), list[Any]()
        for part in range(PARTS):
            some = sorted(texts[part::PARTS], key=len)
            began = process_time()
            mine.append(scorer.score(some, [score])[score][:, 0])
            seconds[0] += process_time() - began
            began = process_time()
            other.append(np.array([x for i in range(0, len(some), BATCH) for x in theirs(some[i : i + BATCH])]))
            seconds[1] += process_time() - began
        ours, minicons = np.concatenate(mine), np.concatenate(other)
        apart, sides = np.abs(ours - minicons), {"ours": ours, "minicons": minicons}
        found.append({
            "model": Path(folder).name, "score": str(score), "sentences": len(texts), "largest": float(apart.max()),
            "relative": float((apart / np.abs(minicons)).max()), "ours": seconds[0], "minicons": seconds[1],
            **{f"{side}_error": float(np.abs(x - truth[score][:, 0]).max()) for side, x in sides.items()},
            **{f"{side}_error_mean": float(np.abs(x - truth[score][:, 0]).mean()) for side, x in sides.items()},
        })  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--pairs", required=True, help="as for probekit pairs: blimp, FILE.tsv …")
    parser.add_argument("--data-dir")
    parser.add_argument("--limit", type=int, default=10, help="pairs of each paradigm, drawn at random")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args()
    rng, of = np.random.default_rng(0), dict[str, list[Any]]()
    for pair in load_pairs(options.pairs, options.data_dir).pairs:
        of.setdefault(pair.paradigm, []).append(pair)
    drawn = [some[i] for some in of.values() for i in rng.permutation(len(some))[: options.limit]]
    texts = list(dict.fromkeys(text for pair in drawn for text in (pair.good, pair.bad)))
    found = [row for folder in options.models for row in compared(folder, texts)]
    head = "model, score, sentences, largest difference, relative, ours from float64, minicons from float64"
    rows = [[*head.split(", "), "ours / s", "minicons / s", "ratio"]]
    rows += [
        [
            row["model"], row["score"], f"{row['sentences']:,}", f"{row['largest']:.1e}", f"{row['relative']:.1e}",
            *(f"{row[f'{side}_error']:.1e} (mean {row[f'{side}_error_mean']:.1e})" for side in ("ours", "minicons")),
            *(f"{row['sentences'] / row[side]:,.0f}" for side in ("ours", "minicons")),
            f"{row['minicons'] / row['ours']:.2f}",
        ]
        for row in found
    ]  # fmt: skip
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
