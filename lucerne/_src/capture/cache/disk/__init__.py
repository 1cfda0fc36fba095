"""Compiled programs on disk: found again in a new process without running the function's body.

`key` describes all that a function can see, `dependencies` notes the code that ran while it was
captured, `program_codec` and `capture_codec` write what was made as plain data and read it back,
`lookup` is the folder and the account of what it did.
"""
