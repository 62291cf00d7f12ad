"""Selection of the number of intents."""
