"""What the user sees while a study runs, and the words and tables of what it found."""
