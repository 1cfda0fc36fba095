"""Laws about single stages of the compiler, for what random programs meet too seldom."""
