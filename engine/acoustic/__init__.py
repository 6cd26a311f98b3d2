"""Flow and vocoder of many sessions as one engine: whose buffer runs dry first goes first."""
