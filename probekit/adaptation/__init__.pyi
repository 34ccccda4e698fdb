from .average import average as average
from .evaluate import evaluate as evaluate
from .methods.merge import merge as merge
from .pretraining.pretrain import pretrain as pretrain
from .pretraining.pretrain_encoder import pretrain_encoder as pretrain_encoder
from .runs.run import Run as Run
from .search.search import search as search
from .train import train as train
