"""`unpatch ops`: which operators a module or function runs, and the way each takes through torch's dispatcher."""
