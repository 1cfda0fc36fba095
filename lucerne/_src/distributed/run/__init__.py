"""`lucerne run`: the agent that starts ranks, watches them, and starts them again."""
