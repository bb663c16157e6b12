"""What a head start from other studies is worth, replayed on recorded tables."""
