"""Compiled versions of functions: `lookup` finds one, `build` makes one, `entry` is one; on disk:
`disk`.
"""
