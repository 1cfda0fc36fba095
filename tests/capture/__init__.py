"""Capture: small functions, eager against compiled, with everything a user can see compared."""
