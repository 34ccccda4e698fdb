from . import domains as domains
from . import explore as explore
from . import plots as plots
from . import report as report
from . import similarity as similarity
from .activations import (
    ActivationCache as ActivationCache,
)
from .activations import (
    cache_activations as cache_activations,
)
from .activations import (
    inspect as inspect,
)
from .activations import (
    verify as verify,
)
from .activations.certify import certify as certify
from .activations.copying import copy_cache as copy_cache
from .activations.foreign.export import export as export
from .activations.foreign.importing import import_activations as import_activations
from .adaptation.average import average as average
from .adaptation.evaluate import evaluate as evaluate
from .adaptation.methods.merge import merge as merge
from .adaptation.pretraining.pretrain import pretrain as pretrain
from .adaptation.pretraining.pretrain_encoder import pretrain_encoder as pretrain_encoder
from .adaptation.runs.run import Run as Run
from .adaptation.search.search import search as search
from .adaptation.train import train as train
from .analyses.choices import choices as choices
from .analyses.compare import compare as compare
from .analyses.edges import edges as edges
from .analyses.ensemble import ensemble as ensemble
from .analyses.geometry import geometry as geometry
from .analyses.glue import glue_score as glue_score
from .analyses.guidelines import guidelines as guidelines
from .analyses.mdl import mdl as mdl
from .analyses.mi import mi as mi
from .analyses.movement import movement as movement
from .analyses.new_task import new_task as new_task
from .analyses.pairs import pairs as pairs
from .analyses.places import places as places
from .analyses.probe import probe as probe
from .analyses.scoreboard import scoreboard as scoreboard
from .analyses.shift import shift as shift
from .analyses.stream import stream as stream
from .analyses.stream.state import merge_streams as merge_streams
from .analyses.structural import structural as structural
from .analyses.summary import summary as summary
from .analyses.transferability import transferability as transferability
from .demo import demo as demo
from .domains.divergence import js_divergence as js_divergence
from .errors import ProbekitError as ProbekitError
from .information import mutual_information as mutual_information
from .information.edge import edge as edge
from .models import load_encoder as load_encoder
from .models.conversion import convert as convert
from .models.new import new_encoder as new_encoder
from .models.sites.report import prove_sites as prove_sites
from .plots import plot as plot
from .probes import LogisticPath as LogisticPath
from .probes import RidgePath as RidgePath
from .provenance.clean import clean as clean
from .provenance.inventory import results as results
from .provenance.reproduce import reproduce as reproduce
from .recipe import Recipe as Recipe
from .rows import Result as Result
from .rows import read as read
from .rows import read_rows as read_rows
from .rows import write_rows as write_rows
from .studies.first_look import run as run
from .studies.run import study as study
from .studies.suites.run import suite as suite
from .tables import table as table
from .tasks import Example as Example
from .tasks import Split as Split
from .tasks import Task as Task
from .tasks import load_task as load_task
from .tasks.check import check_task as check_task
from .tasks.write import write_tasks as write_tasks

__version__: str
