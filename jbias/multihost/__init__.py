"""The processes that train a run together: where they meet, what they tell each other."""
