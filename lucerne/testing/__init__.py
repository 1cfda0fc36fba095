"""`lucerne.testing`: compare tensors, make random ones."""

from lucerne.testing.close import assert_allclose as assert_allclose
from lucerne.testing.close import assert_close as assert_close
from lucerne.testing.make import make_tensor as make_tensor
