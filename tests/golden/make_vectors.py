"""Make the files of word vectors in tests/golden/vectors, and what gensim reads in them: needs gensim (4.4.0).

    python tests/golden/make_vectors.py

A fastText model of 12 words with 60 buckets is trained on a few sentences; word2vec's files hold its words' vectors.
"""

import json
import random
from pathlib import Path

import numpy as np
from gensim.models import FastText, KeyedVectors
from gensim.models.fasttext import load_facebook_vectors, save_facebook_model

HERE = Path(__file__).parent / "vectors"
WORDS = "the cat dog sleeps runs sees naïve façade 猫 犬 running sleeping".split()

draw = random.Random(0)
sentences = [draw.choices(WORDS, k=8) for _ in range(50)]
model = FastText(vector_size=6, window=2, min_count=1, bucket=60, min_n=3, max_n=4, epochs=3, seed=0, workers=1)
model.build_vocab(sentences)
model.train(sentences, total_examples=len(sentences), epochs=3)
save_facebook_model(model, str(HERE / "fasttext.bin"))
read = load_facebook_vectors(str(HERE / "fasttext.bin"))
plain = KeyedVectors(vector_size=6)
plain.add_vectors(WORDS, np.stack([read[word] for word in WORDS]))
plain.save_word2vec_format(str(HERE / "word2vec.bin"), binary=True)
plain.save_word2vec_format(str(HERE / "word2vec.txt"), binary=False)
asked = [*WORDS, "cats", "dogs", "猫犬", "façades", "xyz", "a", "runningly"]
found = {
    "fasttext.bin": {word: read[word].tolist() for word in asked},
    "word2vec.bin": {
        word: KeyedVectors.load_word2vec_format(str(HERE / "word2vec.bin"), binary=True)[word].tolist()
        for word in WORDS
    },
    "word2vec.txt": {
        word: KeyedVectors.load_word2vec_format(str(HERE / "word2vec.txt"))[word].tolist() for word in WORDS
    },
}
(HERE / "gensim.json").write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
