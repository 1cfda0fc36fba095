"""Moving modules and renaming what they are called: by a map, without touching any logic."""
