"""Made surprisal.json with minicons 0.3.39 (`pip install minicons==0.3.39`), torch 2.13 and transformers 5.23.

Not run by the tests. The models are the tiny random ones of tests/tiny.py; the digest of their weights stands beside
the numbers, which are bits: of words for GPT-2 (which gets its piece for the beginning), and of pieces for BERT.
"""

import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import tiny
import transformers

from probekit.models.identity import identify

for name in ("AutoModelForVision2Seq", "AutoModelForVisionTextToText"):  # transformers 5 has no such classes
    if not hasattr(transformers, name):
        setattr(transformers, name, None)
from minicons.scorer import IncrementalLMScorer, MaskedLMScorer

TEXTS = ["the cat sleeps .", "the dog sees a small bird in the garden !", "unhappy birds run"]
found = {"texts": TEXTS, "weights": {}}
with tempfile.TemporaryDirectory() as folder:
    folders = {k: tiny.tiny_language_model(k, Path(folder) / k, causal=k == "gpt2") for k in ("gpt2", "bert")}
    for kind, model in folders.items():
        found["weights"][kind] = identify(model)["weights_digest"]
    causal, masked = IncrementalLMScorer(str(folders["gpt2"]), "cpu"), MaskedLMScorer(str(folders["bert"]), "cpu")
    masked.tokenizer.batch_encode_plus = masked.tokenizer.__call__  # as transformers called it before
    bits = {"surprisal": True, "base_two": True}
    for corrected in (False, True):
        words = causal.word_score_tokenized(TEXTS, str.split, bow_correction=corrected, bos_token=True, **bits)
        found["space after" if corrected else "space before"] = [float(x) for text in words for _, x in text]
    for score, metric in (("pll", "original"), ("pll-word", "within_word_l2r")):
        found[score] = [float(x) for text in masked.token_score(TEXTS, PLL_metric=metric, **bits) for _, x in text]
(HERE / "surprisal.json").write_text(json.dumps(found, indent=1) + "\n")
