from .alarm import Alarm as Alarm
from .alarm import load_alarm as load_alarm
from .folder import load_probe as load_probe
from .folder import load_probes as load_probes
from .lines import monitor as monitor
from .probe import Probe as Probe
from .watch import Watch as Watch
