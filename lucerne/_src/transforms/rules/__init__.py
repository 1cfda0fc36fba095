"""The rules of `simplify`, by family. A rule is a row: name, ops, function, exactness, reason."""
