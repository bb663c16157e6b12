"""The shipped model cards: a JSON file each, named after the card; `autotune.models.card` has its fields."""
