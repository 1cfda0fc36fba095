"""Exercises for those who extend Lucerne; docs/extend/exercises.md says what each one asks."""
