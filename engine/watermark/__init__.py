"""The stage that every sample goes through before it may leave."""
