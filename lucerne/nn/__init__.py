"""`lucerne.nn`: layers. At this stage the functional half."""

from lucerne.nn import functional as functional
