"""Side effects: what captured code writes to objects that live outside of it, repeated at each
call.
"""
