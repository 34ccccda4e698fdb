from .first_look import run as run
from .planned import study as study
from .planned import suite as suite
