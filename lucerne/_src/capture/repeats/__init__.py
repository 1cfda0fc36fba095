"""Blocks that repeat: a module that is like one that was traced is not interpreted again."""
