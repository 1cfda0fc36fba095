"""What passes and their managers have in common."""

from lucerne.fx.passes.infra import pass_base as pass_base
from lucerne.fx.passes.infra import pass_manager as pass_manager
