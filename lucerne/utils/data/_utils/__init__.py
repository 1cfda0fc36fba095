"""The parts of a loader under the names that libraries import them by."""

from lucerne.utils.data._utils import collate as collate
from lucerne.utils.data._utils import fetch as fetch
from lucerne.utils.data._utils import pin_memory as pin_memory
from lucerne.utils.data._utils import signal_handling as signal_handling
from lucerne.utils.data._utils import worker as worker

MP_STATUS_CHECK_INTERVAL = 5.0
python_exit_status = False
