"""Mixed precision: products in bfloat16 or float16, the rest as it was, and scaled losses."""

from lucerne.amp.autocast_mode import autocast as autocast
from lucerne.amp.autocast_mode import custom_bwd as custom_bwd
from lucerne.amp.autocast_mode import custom_fwd as custom_fwd
from lucerne.amp.autocast_mode import is_autocast_available as is_autocast_available
from lucerne.amp.grad_scaler import GradScaler as GradScaler
