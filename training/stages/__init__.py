"""One module a stage; each wraps an engine module with its data, its loss and its check."""
