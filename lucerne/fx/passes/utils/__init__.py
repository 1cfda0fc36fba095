"""Helpers of passes."""

from lucerne.fx.passes.utils.matcher_utils import InternalMatch as InternalMatch
from lucerne.fx.passes.utils.matcher_utils import SubgraphMatcher as SubgraphMatcher
