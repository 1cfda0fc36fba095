"""The kit for chips: formulas, the handshake, the fallback bill, backends outside the package."""
