"""`lucerne plan`: what a script with a mesh needs on a cluster that is not here."""
