from .corpora import Corpus as Corpus
from .corpora import read_files as read_files
from .corpora import read_hub as read_hub
from .corpora import read_texts as read_texts
from .counting import Counts as Counts
from .counting import count as count
from .divergence import js_divergence as js_divergence
from .options import DocumentUnit as DocumentUnit
from .options import Tokenization as Tokenization
from .scanning import Tokenize as Tokenize
from .scanning import hugging_face as hugging_face
from .terms import (
    Terms as Terms,
)
from .terms import (
    choose_terms as choose_terms,
)
from .terms import (
    count_domains as count_domains,
)
from .terms import (
    load_counts as load_counts,
)
from .terms import (
    merge as merge,
)
from .terms import (
    save_counts as save_counts,
)
