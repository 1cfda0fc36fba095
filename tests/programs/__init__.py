"""Short training programs in the style of popular repositories, on torch and on Lucerne."""
