"""DataPipes, for programs that still use them."""

from lucerne.utils.data.datapipes import datapipe as datapipe
from lucerne.utils.data.datapipes import iter as iter
from lucerne.utils.data.datapipes import map as map
